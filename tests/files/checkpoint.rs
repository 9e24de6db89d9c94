//! Checkpoints: an interrupted run continues bit for bit, and the files on disk are always complete.

use cotangent::data::{DataLoader, DataLoaderOptions};
use cotangent::io::{
    Better, Checkpoint, Checkpoints, DefaultGenerator, State, StateDict, Stateful, Value, safetensors,
};
use cotangent::nn::{BatchNorm1d, Dropout, Forward, Linear, Module, ReLU, Sequential};
use cotangent::optim::{Adam, AdamW, AveragedModel, GradScaler, Muon, Optimizer, Scheduler, Sgd, SgdOptions, StepLR};
use cotangent::{DType, Generator, Result, Tensor, with_generator};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

type Outcome = std::result::Result<(), Box<dyn std::error::Error>>;

/// A folder that is removed when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> std::io::Result<Folder> {
        let path = std::env::temp_dir().join(format!("cotangent-checkpoint-{name}-{}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Folder(path))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn message(result: Result<impl Sized>) -> String {
    result.map_or_else(|error| error.to_string(), |_| "no error".to_string())
}

const ITEMS: usize = 40;
const BATCH: usize = 8;

/// Positions of items in a new order each epoch.
struct Shuffle {
    generator: Generator,
    order: Vec<i64>,
    epoch: u64,
    position: usize,
}

fn order(generator: &mut Generator) -> Result<Vec<i64>> {
    with_generator(generator, || Tensor::randperm(ITEMS))?.to_vec()
}

impl Shuffle {
    fn new(seed: u64) -> Result<Shuffle> {
        let mut shuffle = Shuffle { generator: Generator::seed(seed), order: Vec::new(), epoch: 0, position: 0 };
        shuffle.order = order(&mut shuffle.generator)?;
        Ok(shuffle)
    }

    fn next(&mut self) -> Result<Tensor> {
        if self.position == ITEMS {
            self.order = order(&mut self.generator)?;
            (self.epoch, self.position) = (self.epoch + 1, 0);
        }
        let batch = Tensor::from_slice(&self.order[self.position..self.position + BATCH], BATCH)?;
        self.position += BATCH;
        Ok(batch)
    }
}

impl Stateful for Shuffle {
    fn save_state(&self) -> Result<State> {
        let mut state = self.generator.save_state()?;
        state.tensors.insert("order", Tensor::from_slice(&self.order, ITEMS)?);
        state.set("epoch", self.epoch);
        state.set("position", self.position);
        Ok(state)
    }

    fn load_state(&mut self, state: &State) -> Result<()> {
        let order = state.tensors.get("order").map(Tensor::to_vec).transpose()?.unwrap_or_default();
        let (epoch, position) = (state.u64("epoch")?, state.usize("position")?);
        self.generator = Generator::from_state(state.u64("seed")?, state.u64("offset")?);
        (self.order, self.epoch, self.position) = (order, epoch, position);
        Ok(())
    }
}

/// One object of every kind with a state.
struct Run<O> {
    model: Sequential,
    optimizer: O,
    shuffle: Shuffle,
    step: u64,
    losses: Vec<f64>,
}

impl<O: Optimizer + Stateful> Run<O> {
    fn new(optimizer: O, dtype: DType, seed: u64) -> Result<Run<O>> {
        cotangent::manual_seed(seed);
        let mut model = Sequential::new()
            .add(Linear::new(6, 16)?)
            .add(BatchNorm1d::new(16)?)
            .add(ReLU)
            .add(Dropout::new(0.4)?)
            .add(Linear::new(16, 3)?);
        model.to_dtype(dtype)?;
        Ok(Run { model, optimizer, shuffle: Shuffle::new(seed)?, step: 0, losses: Vec::new() })
    }

    fn train(&mut self, until: u64) -> Result<()> {
        let mut data = Generator::seed(11);
        let (x, y) = (data.randn([ITEMS, 6])?, data.randint(0, 3, [ITEMS])?);
        while self.step < until {
            let batch = self.shuffle.next()?;
            let inputs = x.index_select(0, &batch)?.to_dtype(self.model.parameters()[0].dtype())?;
            let loss = self.model.forward(&inputs)?.cross_entropy(&y.index_select(0, &batch)?)?;
            self.model.zero_grad();
            loss.backward()?;
            self.optimizer.set_lr(0.01 / (1.0 + self.step as f64));
            self.optimizer.step(&mut self.model)?;
            self.losses.push(loss.item()?);
            self.step += 1;
        }
        Ok(())
    }

    fn checkpoint(&self) -> Result<Checkpoint> {
        let mut checkpoint = Checkpoint::new();
        checkpoint.add("model", &self.model)?;
        checkpoint.add("optimizer", &self.optimizer)?;
        checkpoint.add("data", &self.shuffle)?;
        checkpoint.add("random", &DefaultGenerator)?;
        checkpoint.set("step", self.step);
        checkpoint.set("losses", self.losses.clone());
        Ok(checkpoint)
    }

    fn resume(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        checkpoint.restore(&mut [
            ("model", &mut self.model),
            ("optimizer", &mut self.optimizer),
            ("data", &mut self.shuffle),
            ("random", &mut DefaultGenerator),
        ])?;
        self.step = checkpoint.values().u64("step")?;
        let losses = checkpoint.values().get("losses").and_then(Value::as_list).unwrap_or_default();
        self.losses = losses.iter().filter_map(Value::as_f64).collect();
        Ok(())
    }
}

/// Names, dtypes and bytes.
fn bits(dict: &StateDict) -> Result<Vec<(String, DType, Vec<u64>)>> {
    let bits = |x: &Tensor| Ok(x.to_dtype(DType::F64)?.to_vec::<f64>()?.iter().map(|x| x.to_bits()).collect());
    dict.iter().map(|(name, x)| Ok((name.to_string(), x.dtype(), bits(x)?))).collect()
}

fn interrupted_anywhere<O: Optimizer + Stateful>(name: &str, optimizer: impl Fn() -> O, dtype: DType) -> Outcome {
    const STEPS: u64 = 14;
    let folder = Folder::new(&format!("resume-{name}-{dtype}"))?;
    let mut whole = Run::new(optimizer(), dtype, 3)?;
    whole.train(STEPS)?;
    // In the first and the second epoch of five batches, and between them.
    for stop in [1, 3, 5, 7] {
        let path = folder.file("run.ckpt");
        let mut first = Run::new(optimizer(), dtype, 3)?;
        first.train(stop)?;
        first.checkpoint()?.save(&path)?;
        // Another process would have other weights, and other positions in all random sequences.
        let mut second = Run::new(optimizer(), dtype, 99)?;
        second.train(2)?;
        second.resume(&Checkpoint::load(&path)?)?;
        second.train(STEPS)?;
        let losses = |run: &Run<O>| run.losses.iter().map(|loss| loss.to_bits()).collect::<Vec<_>>();
        assert_eq!(losses(&second), losses(&whole), "{name} {dtype}, stopped after {stop}");
        assert_eq!(bits(&second.model.state_dict())?, bits(&whole.model.state_dict())?, "{name} {dtype}");
        assert_eq!(bits(&second.optimizer.state_dict()?)?, bits(&whole.optimizer.state_dict()?)?, "{name} {dtype}");
    }
    Ok(())
}

#[test]
fn a_resumed_run_is_the_one_that_was_not_interrupted() -> Outcome {
    with_generator(&mut Generator::seed(0), || {
        interrupted_anywhere("AdamW", || AdamW::new(0.01), DType::F32)?;
        interrupted_anywhere("AdamW", || AdamW::new(0.01), DType::BF16)?;
        interrupted_anywhere("Adam", || Adam::new(0.01), DType::F64)?;
        interrupted_anywhere("Sgd", || Sgd::new_with(SgdOptions::new().lr(0.01).momentum(0.9)), DType::F32)?;
        // It takes matrices only.
        interrupted_anywhere(
            "Muon",
            || Muon::new(0.01).only(|name| ["0.weight", "4.weight"].contains(&name)),
            DType::F32,
        )
    })
}

const FOLDER: &str = "COTANGENT_TEST_CHECKPOINTS";
const STEPS: u64 = 24;

/// Only runs when the test below starts it in a separate process: trains to the end, from where it left off.
#[test]
fn a_process_that_trains() -> Outcome {
    let Ok(folder) = std::env::var(FOLDER) else { return Ok(()) };
    let checkpoints = Checkpoints::new(&folder)?.keep_last(2);
    let mut run = Run::new(AdamW::new(0.01), DType::F32, 5)?;
    // Something that takes a while to write.
    let ballast = Generator::seed(1).randn([1 << 18])?;
    if let Some((_, path)) = checkpoints.last()? {
        let checkpoint = Checkpoint::load(path)?;
        run.resume(&checkpoint)?;
        let saved = checkpoint.part("ballast").and_then(|state| state.tensors.get("")).cloned().ok_or("no ballast")?;
        assert!(saved.equal(&ballast.mul(run.step as f64)?)?, "the file is not whole");
    }
    while run.step < STEPS {
        run.train(run.step + 1)?;
        let mut checkpoint = run.checkpoint()?;
        checkpoint.add("ballast", &Ballast(ballast.mul(run.step as f64)?))?;
        checkpoints.save(run.step, &checkpoint)?;
    }
    Ok(())
}

struct Ballast(Tensor);

impl Stateful for Ballast {
    fn save_state(&self) -> Result<State> {
        Ok(StateDict::from_iter([("", self.0.clone())]).into())
    }

    fn load_state(&mut self, _: &State) -> Result<()> {
        Ok(())
    }
}

/// `kill -9` at any moment, while it writes too, loses at most the step it was at.
#[test]
fn a_run_that_is_killed_again_and_again_ends_as_if_it_had_not_been() -> Outcome {
    with_generator(&mut Generator::seed(0), || {
        let mut whole = Run::new(AdamW::new(0.01), DType::F32, 5)?;
        whole.train(STEPS)?;
        let folder = Folder::new("killed")?;
        let checkpoints = Checkpoints::new(&folder.0)?;
        let (mut kills, mut before) = (0, 0);
        loop {
            let mut child = Command::new(std::env::current_exe()?)
                .args(["--exact", "checkpoint::a_process_that_trains", "--test-threads", "1"])
                .env(FOLDER, &folder.0)
                .stdout(Stdio::null())
                .spawn()?;
            // It makes progress, and is killed at a different moment of a step each time.
            let mut waited = 0;
            let done = loop {
                if let Some(status) = child.try_wait()? {
                    break Some(status);
                }
                let at = checkpoints.last()?.map_or(0, |(step, _)| step);
                waited += 1;
                if at > before + 2 || waited > 20_000 {
                    std::thread::sleep(Duration::from_micros(1700 * kills));
                    break None;
                }
                std::thread::sleep(Duration::from_millis(1));
            };
            match done {
                Some(status) => {
                    assert!(status.success(), "the child failed after {kills} kills");
                    break;
                }
                None => {
                    child.kill()?;
                    child.wait()?;
                    kills += 1;
                    before = checkpoints.last()?.map_or(0, |(step, _)| step);
                }
            }
        }
        assert!(kills >= 3, "{kills} kills");
        let (step, path) = checkpoints.last()?.ok_or("no checkpoint")?;
        let last = Checkpoint::load(path)?;
        assert_eq!(step, STEPS);
        let model = &last.part("model").ok_or("no model")?.tensors;
        let mut saved = bits(model)?;
        saved.sort_by(|a, b| a.0.cmp(&b.0));
        let mut expected = bits(&whole.model.state_dict())?;
        expected.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(saved, expected, "after {kills} kills");
        Ok(())
    })
}

#[test]
fn a_checkpoint_of_something_else_changes_nothing() -> Outcome {
    with_generator(&mut Generator::seed(0), || {
        let folder = Folder::new("refused")?;
        let path = folder.file("run.ckpt");
        let mut run = Run::new(AdamW::new(0.01), DType::F32, 3)?;
        run.train(3)?;
        run.checkpoint()?.save(&path)?;
        let checkpoint = Checkpoint::load(&path)?;
        let (mut optimizer, mut random) = (AdamW::new(0.5), Generator::seed(5));
        let mut model = Sequential::new().add(Linear::new(6, 16)?).add(Linear::new(16, 3)?);
        let before = (bits(&model.state_dict())?, bits(&optimizer.state_dict()?)?, random.clone());
        let state_of_all = cotangent::random::rng_state();
        let refused = message(checkpoint.restore(&mut [
            ("random", &mut DefaultGenerator),
            ("optimizer", &mut optimizer),
            ("model", &mut model),
            ("data", &mut random),
        ]));
        assert!(refused.starts_with("Checkpoint::restore: model: nothing was loaded:"), "{refused}");
        for part in ["1.weight must have shape [3, 16], got [16]", "unexpected 4.weight", "unexpected 1.running_mean"] {
            assert!(refused.contains(part), "{refused}");
        }
        assert_eq!((bits(&model.state_dict())?, bits(&optimizer.state_dict()?)?, random.clone()), before);
        assert_eq!(cotangent::random::rng_state(), state_of_all);
        let refused = message(checkpoint.restore(&mut [("ema", &mut model), ("scaler", &mut random)]));
        assert_eq!(
            refused,
            "Checkpoint::restore: no part named ema, scaler: the checkpoint has data, model, optimizer, random"
        );
        // One part is not mistaken for another.
        let refused = message(checkpoint.restore(&mut [("optimizer", &mut random)]));
        assert!(
            refused.contains("optimizer: nothing was loaded:\n  missing seed\n  missing offset\n  unexpected"),
            "{refused}"
        );
        let refused = message(checkpoint.restore(&mut [("random", &mut optimizer)]));
        assert!(refused.contains("unexpected offset"), "{refused}");
        Ok(())
    })
}

#[test]
fn what_is_no_checkpoint_is_refused() -> Outcome {
    let folder = Folder::new("foreign")?;
    let path = folder.file("run.ckpt");
    let dict = StateDict::from_iter([("model.weight", Tensor::zeros([2])?)]);
    let save = |about: &str| {
        let metadata = [("cotangent.checkpoint".to_string(), about.to_string())].into_iter().collect();
        safetensors::save_with_metadata(&path, &dict, &metadata)
    };
    safetensors::save(&path, &dict)?;
    assert!(message(Checkpoint::load(&path)).contains("run.ckpt: not a checkpoint"));
    for (about, part) in [
        ("{", "EOF while parsing"),
        ("{}", "has no version"),
        (r#"{"version": 2}"#, "checkpoint version must be 1, got 2"),
        (r#"{"version": 1}"#, "has no parts"),
        (r#"{"version": 1, "parts": {"other": null}}"#, "model.weight belongs to no part"),
    ] {
        save(about)?;
        let refused = message(Checkpoint::load(&path));
        assert!(refused.starts_with("Checkpoint::load: ") && refused.contains(part), "{refused}");
    }
    let mut checkpoint = Checkpoint::new();
    for name in ["", "a.b"] {
        assert!(message(checkpoint.add(name, &Generator::seed(1))).contains("name must not be empty or contain a dot"));
    }
    Ok(())
}

#[test]
fn values_of_ones_own_come_back() -> Outcome {
    with_generator(&mut Generator::seed(0), || {
        let folder = Folder::new("values")?;
        let path = folder.file("run.ckpt");
        let mut checkpoint = Checkpoint::new();
        let values: Vec<(&str, Value)> = vec![
            ("best", f64::INFINITY.into()),
            ("tenth", 0.1.into()),
            ("seed", u64::MAX.into()),
            ("name", "ünï \"x\"\n".into()),
            ("none", Value::Null),
            ("nested", Value::from_iter([("list", vec![1, -2])])),
            ("flag", true.into()),
        ];
        values.iter().for_each(|(name, value)| checkpoint.set(*name, value.clone()));
        checkpoint.set("nan", f64::NAN);
        checkpoint.add("model", &Linear::new(2, 1)?)?;
        checkpoint.save(&path)?;
        let loaded = Checkpoint::load(&path)?;
        for (name, value) in &values {
            assert_eq!(loaded.values().get(name), Some(value), "{name}");
        }
        assert!(loaded.values().f64("nan")?.is_nan());
        assert!(message(loaded.values().u64("name")).contains("State::u64: name must be an integer ≥ 0, got \"ünï"));
        // Other programs read the tensors by their names.
        let mut names: Vec<String> = safetensors::load(&path)?.names().map(str::to_string).collect();
        names.sort();
        assert_eq!(names, ["model.bias", "model.weight"]);
        Ok(())
    })
}

#[test]
fn the_last_and_the_best_are_kept() -> Outcome {
    let folder = Folder::new("kept")?;
    let with = |metric: f64| {
        let mut checkpoint = Checkpoint::new();
        checkpoint.set("accuracy", metric);
        checkpoint
    };
    let checkpoints = Checkpoints::new(folder.file("run"))?.keep_last(2).keep_best(2, "accuracy", Better::Higher);
    assert_eq!((checkpoints.last()?, checkpoints.best()?), (None, None));
    fs::write(folder.file("run/step-notes.ckpt"), "of the user")?;
    for (step, metric) in [(1, 0.5), (2, f64::NAN), (3, 0.9), (4, 0.9), (5, 0.1), (10, 0.2), (11, f64::NAN)] {
        checkpoints.save(step, &with(metric))?;
    }
    assert_eq!(checkpoints.steps()?, [3, 4, 10, 11]);
    assert_eq!(checkpoints.best()?.map(|best| best.0), Some(3), "of equal ones the earlier");
    assert_eq!(checkpoints.last()?.map(|last| last.0), Some(11));
    assert_eq!(fs::read_to_string(folder.file("run/step-notes.ckpt"))?, "of the user");
    // A resumed run knows the best value so far.
    let again = Checkpoints::new(folder.file("run"))?.keep_last(1).keep_best(1, "accuracy", Better::Higher);
    again.save(12, &with(0.3))?;
    assert_eq!(again.steps()?, [3, 12]);
    // A run that restarts below the last step keeps what it has just saved.
    again.save(5, &with(0.0))?;
    assert_eq!(again.steps()?, [3, 5, 12]);
    let refused = message(again.save(13, &Checkpoint::new()));
    assert!(refused.starts_with("Checkpoints::save: no value named accuracy"), "{refused}");
    assert_eq!(again.steps()?, [3, 5, 12]);
    let all = Checkpoints::new(folder.file("all"))?;
    (1..=5).try_for_each(|step| all.save(step, &with(0.0)).map(drop))?;
    assert_eq!(all.steps()?.len(), 5);
    assert!(message(all.best()).contains("keep_best"));
    Ok(())
}

/// A schedule, a scaler, averaged weights and a loader of this crate, in the middle of an epoch.
#[test]
fn all_parts_of_a_training_can_be_in_a_checkpoint() -> Outcome {
    with_generator(&mut Generator::seed(0), || {
        let folder = Folder::new("parts")?;
        let path = folder.file("run.ckpt");
        let options = DataLoaderOptions::new().batch_size(2).shuffle(true);
        let make = |seed: u64| -> Result<_> {
            cotangent::manual_seed(seed);
            let (model, mut optimizer) = (Linear::new(3, 2)?, Sgd::new(0.1));
            let scheduler = Scheduler::new(&mut optimizer, StepLR::new(2).gamma(0.5))?;
            let (ema, scaler) = (AveragedModel::ema(&model, 0.9)?, GradScaler::new());
            let loader = DataLoader::new_with((0..10).collect::<Vec<i64>>(), &options)?;
            let optimizer: Box<dyn Optimizer> = Box::new(optimizer);
            Ok((model, optimizer, scheduler, ema, scaler, loader))
        };
        let (mut model, mut optimizer, mut scheduler, mut ema, mut scaler, mut loader) = make(1)?;
        let mut batches = loader.iter();
        for _ in 0..3 {
            let batch = batches.next().transpose()?.ok_or("no batch")?;
            let loss = model.forward(&batch.to_dtype(DType::F32)?.unsqueeze(1)?.expand([2, 3])?)?.square()?.mean(..)?;
            model.zero_grad();
            scaler.scale(&loss)?.backward()?;
            scaler.step(&mut *optimizer, &mut model)?;
            scaler.update()?;
            scheduler.step(&mut *optimizer)?;
            ema.update(&model)?;
        }
        let mut checkpoint = Checkpoint::new();
        checkpoint.add("model", &model)?;
        checkpoint.add("optimizer", &optimizer)?;
        checkpoint.add("schedule", &scheduler)?;
        checkpoint.add("ema", &ema)?;
        checkpoint.add("scaler", &scaler)?;
        checkpoint.add("data", &loader)?;
        checkpoint.save(&path)?;
        let rest: Vec<Vec<i64>> = batches.map(|batch| batch?.to_vec()).collect::<Result<_>>()?;

        let expected =
            (bits(&model.state_dict())?, bits(&ema.state_dict()?)?, bits(&scaler.state_dict()?)?, optimizer.lr());
        (model, optimizer, scheduler, ema, scaler, loader) = make(2)?;
        Checkpoint::load(&path)?.restore(&mut [
            ("model", &mut model),
            ("optimizer", &mut optimizer),
            ("schedule", &mut scheduler),
            ("ema", &mut ema),
            ("scaler", &mut scaler),
            ("data", &mut loader),
        ])?;
        let sorted = |mut bits: Vec<(String, DType, Vec<u64>)>| {
            bits.sort_by(|a, b| a.0.cmp(&b.0));
            bits
        };
        assert_eq!(sorted(bits(&model.state_dict())?), sorted(expected.0));
        assert_eq!(sorted(bits(&ema.state_dict()?)?), sorted(expected.1));
        assert_eq!(sorted(bits(&scaler.state_dict()?)?), sorted(expected.2));
        assert_eq!(optimizer.lr(), expected.3);
        let again: Vec<Vec<i64>> = loader.iter().map(|batch| batch?.to_vec()).collect::<Result<_>>()?;
        assert_eq!((again.len(), &again), (2, &rest));
        scheduler.step(&mut *optimizer)?;
        assert_eq!(optimizer.lr(), 0.025);
        Ok(())
    })
}

/// Temporary files of a killed process are removed when they are old and not being written.
#[test]
fn leftovers_are_removed_when_nobody_can_be_writing_them() -> Outcome {
    let folder = Folder::new("leftovers")?;
    let hours_ago = std::time::SystemTime::now() - Duration::from_secs(7200);
    let make = |name: &str, time| -> std::io::Result<fs::File> {
        let file = fs::File::create(folder.file(name))?;
        file.set_modified(time)?;
        Ok(file)
    };
    drop(make(".cotangent-0123456789abcdef.tmp", hours_ago)?);
    drop(make(".cotangent-mine.tmp", hours_ago)?);
    drop(make(".cotangent-1111111111111111.tmp", std::time::SystemTime::now())?);
    let writing = make(".cotangent-2222222222222222.tmp", hours_ago)?;
    writing.lock()?;
    Checkpoints::new(&folder.0)?.save(1, &Checkpoint::new())?;
    let left = |name: &str| folder.file(name).exists();
    assert!(!left(".cotangent-0123456789abcdef.tmp"));
    assert!(left(".cotangent-mine.tmp"));
    assert!(left(".cotangent-1111111111111111.tmp"));
    assert!(left(".cotangent-2222222222222222.tmp"));
    Ok(())
}

/// A process that saves until it is killed, which one test starts by running another one.
#[cfg(target_os = "linux")]
#[test]
fn saves_until_it_is_killed() -> Outcome {
    let Some(folder) = std::env::var_os("COTANGENT_TEST_SAVES_IN") else { return Ok(()) };
    let values = Tensor::ones([1 << 20])?;
    loop {
        safetensors::save(PathBuf::from(&folder).join("values"), &StateDict::from_iter([("x", values.clone())]))?;
    }
}

/// The next one that saves in the folder removes what a killed process left, at once, and nothing else.
#[cfg(target_os = "linux")]
#[test]
fn what_a_killed_process_left_goes_with_the_next_save() -> Outcome {
    let folder = Folder::new("killed_while_saving")?;
    let temporaries = || -> std::io::Result<Vec<PathBuf>> {
        let all = fs::read_dir(&folder.0)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
        Ok(all.into_iter().filter(|path| path.extension().is_some_and(|end| end == "tmp")).collect())
    };
    let mut killed = 0;
    while temporaries()?.is_empty() {
        killed += 1;
        assert!(killed < 200, "no process was killed while it wrote");
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--exact", "checkpoint::saves_until_it_is_killed"])
            .env("COTANGENT_TEST_SAVES_IN", &folder.0)
            .stdout(Stdio::null())
            .spawn()?;
        let start = std::time::Instant::now();
        while !folder.file("values").exists() && start.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(killed % 7));
        child.kill()?;
        child.wait()?;
    }
    // Files of a living process, of another system, and of another program.
    let left = temporaries()?.swap_remove(0);
    let name = left.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_string();
    let parts: Vec<&str> = name.split('-').collect();
    let with = |at: usize, part: &str| {
        let mut parts = parts.clone();
        parts[at] = part;
        parts.join("-")
    };
    let others = [with(2, "1"), with(1, "0123456789abcdef"), ".cotangent-1-2-3.tmp".to_string()];
    for other in &others {
        fs::write(folder.file(other), "")?;
    }
    safetensors::save(folder.file("other"), &StateDict::from_iter([("x", Tensor::ones([2])?)]))?;
    let mut stays: Vec<PathBuf> = others.iter().map(|name| folder.file(name)).collect();
    stays.sort();
    let mut all = temporaries()?;
    all.sort();
    assert_eq!(all, stays);
    Ok(())
}

/// A path that is not a folder, and one that cannot be made.
#[test]
fn a_folder_that_cannot_be_is_an_error() -> Outcome {
    let folder = Folder::new("nofolder")?;
    fs::write(folder.file("file"), "x")?;
    let refused = message(Checkpoints::new(folder.file("file/run")));
    assert!(refused.starts_with("Checkpoints::new: ") && refused.contains("file/run"), "{refused}");
    assert!(message(Checkpoint::load(Path::new("/nonexistent/run.ckpt"))).starts_with("Checkpoint::load: "));
    Ok(())
}
