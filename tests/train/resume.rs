//! Interrupted trainers: a resumed run continues bit for bit like an uninterrupted one.

use cotangent::io::Checkpoint;
use cotangent::nn::{BatchNorm1d, Dropout, Forward, Linear, Module, ReLU, Sequential};
use cotangent::optim::{
    AdamW, AveragedModel, CosineAnnealingLR, GradScaler, GradScalerOptions, LinearLR, OneCycleLR, Optimizer,
    ReduceLROnPlateau, Schedule, Sgd, StepLR,
};
use cotangent::train::{Accuracy, Moment, Stop, Trainer};
use cotangent::{DType, Generator, Result, Tensor, with_generator};
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

type Outcome = std::result::Result<(), Box<dyn Error>>;
type Batch = (Tensor, Tensor);
type Run<'a> = Trainer<'a, Sequential, Batch>;

/// A folder that is removed when its guard is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> std::io::Result<Folder> {
        let path = std::env::temp_dir().join(format!("cotangent-resume-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path)?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Five batches, the same for an epoch's number.
fn batches(epoch: u64) -> Result<Vec<Result<Batch>>> {
    let mut generator = Generator::seed(epoch);
    let mut batch = || Ok((generator.randn([6, 6])?, generator.randint(0, 3, [6])?));
    Ok((0..5).map(|_| batch()).collect())
}

/// Batches that are drawn on demand from the default generator, like dropout, with a random shift for each epoch.
fn drawn(_: u64) -> Result<impl Iterator<Item = Result<Batch>>> {
    let shift = Tensor::rand(())?.item::<f64>()?;
    Ok((0..5).map(move |_| Ok((Tensor::randn([6, 6])?.add(shift)?, Tensor::randint(0, 3, [6])?))))
}

fn loss(model: &Sequential, (x, y): &Batch) -> Result<Tensor> {
    model.forward(x)?.cross_entropy(y)
}

fn predict(model: &Sequential, (x, y): &Batch) -> Result<(Tensor, Tensor)> {
    Ok((model.forward(x)?, y.clone()))
}

fn model(seed: u64) -> Result<Sequential> {
    cotangent::manual_seed(seed);
    Ok(Sequential::new()
        .add(Linear::new(6, 8)?)
        .add(BatchNorm1d::new(8)?)
        .add(ReLU)
        .add(Dropout::new(0.2)?)
        .add(Linear::new(8, 3)?))
}

fn optimizer() -> AdamW {
    AdamW::new(1e-2).group(|name| name.ends_with("bias"), |options| options.weight_decay(0.0).lr(2e-2))
}

const EPOCHS: u64 = 4;

/// Names and bits of parameters and buffers.
fn bits(model: &Sequential) -> Result<Vec<(String, Vec<u64>)>> {
    let bits = |x: &Tensor| -> Result<Vec<u64>> {
        Ok(x.to_dtype(DType::F64)?.to_vec::<f64>()?.iter().map(|x| x.to_bits()).collect())
    };
    model.state_dict().iter().map(|(name, x)| Ok((name.to_string(), bits(x)?))).collect()
}

/// The results of a run.
#[derive(Debug, PartialEq)]
struct End {
    model: Vec<(String, Vec<u64>)>,
    average: Option<Vec<(String, Vec<u64>)>>,
    lrs: Vec<u64>,
    values: Vec<Option<u64>>,
    steps: u64,
    /// The rates and losses of all steps.
    logged: Vec<(u64, String)>,
}

type Log = std::rc::Rc<std::cell::RefCell<Vec<(u64, String)>>>;

struct Logged(Log);

impl cotangent::train::Log for Logged {
    fn log(&mut self, step: u64, values: &[(&str, f64)]) -> Result<()> {
        self.0.borrow_mut().push((step, format!("{values:?}")));
        Ok(())
    }
}

/// Runs to the end or until it is stopped, with other random numbers than the process before.
fn run<I: IntoIterator<Item = Result<Batch>>>(
    seed: u64,
    trainer: Run<'_>,
    folder: &Path,
    stop: Option<u64>,
    log: &Log,
    batches: impl FnMut(u64) -> Result<I>,
) -> Result<End> {
    let (mut model, mut optimizer) = (model(seed)?, optimizer());
    let stopping = move |moment: &mut Moment<'_, Sequential>| {
        if Some(moment.step) == stop {
            moment.stop();
        }
        Ok(())
    };
    let mut trainer = trainer.epochs(EPOCHS).checkpoints(folder).log(Logged(log.clone())).callback(stopping).quiet();
    let fit = trainer.resume(&mut model, &mut optimizer, batches)?;
    assert_eq!(fit.stop(), if stop.is_some() { Stop::Callback } else { Stop::Finished });
    let names = ["loss", "val_loss", "val_accuracy"];
    Ok(End {
        model: bits(&model)?,
        average: trainer.take_averaged().map(|model| bits(&model)).transpose()?,
        lrs: optimizer.lrs().iter().map(|lr| lr.to_bits()).collect(),
        values: names.iter().map(|name| fit.value(name).map(f64::to_bits)).collect(),
        steps: fit.steps(),
        logged: log.borrow().clone(),
    })
}

/// Stopped after each of these steps, a run ends as the one that is not stopped.
fn interrupted<I: IntoIterator<Item = Result<Batch>>>(
    name: &str,
    trainer: impl Fn() -> Run<'static>,
    batches: impl Fn(u64) -> Result<I> + Copy,
    stops: &[u64],
) -> Outcome {
    let folder = Folder::new(name)?;
    let whole = run(3, trainer(), &folder.0.join("whole"), None, &Log::default(), batches)?;
    for &stop in stops {
        let (path, log) = (folder.0.join(stop.to_string()), Log::default());
        run(3, trainer(), &path, Some(stop), &log, batches)?;
        let resumed = run(77, trainer(), &path, None, &log, batches)?;
        assert_eq!(resumed, whole, "{name}, stopped after {stop}");
    }
    // Resuming a finished run returns its result.
    let again = run(78, trainer(), &folder.0.join("whole"), None, &Log::default(), batches)?;
    assert_eq!((again.model, again.average, again.values), (whole.model, whole.average, whole.values), "{name}");
    Ok(())
}

/// A separate generator, since other tests draw at the same time.
fn alone(test: impl FnOnce() -> Outcome) -> Outcome {
    with_generator(&mut Generator::seed(0), test)
}

#[test]
fn steps_by_a_function_of_the_step() -> Outcome {
    let trainer = || Trainer::new(loss).accumulate(2).lr(|step| 1e-2 / (1 + step) as f64);
    // Three steps in an epoch: the last of one batch that is left over.
    alone(|| interrupted("function", trainer, batches, &[1, 3, 5, 8]))
}

#[test]
fn a_schedule_by_step_with_clipping_averages_and_validation() -> Outcome {
    let trainer = || {
        Trainer::new(loss)
            .schedule(LinearLR::warmup(4).then(4, CosineAnnealingLR::new(16)))
            .clip_grad_norm(0.5)
            .average(|model| AveragedModel::ema(model, 0.9))
            .validate(|| batches(100), predict)
            .metric(Accuracy::new())
            .monitor("val_accuracy")
    };
    alone(|| interrupted("schedule", trainer, batches, &[2, 5, 7, 13]))
}

#[test]
fn a_cycle_that_also_sets_the_momentum_ends_with_the_last_step() -> Outcome {
    alone(|| interrupted("cycle", || Trainer::new(loss).schedule(OneCycleLR::new(0.05, 20_u64)), batches, &[4, 11]))
}

#[test]
fn a_schedule_by_epoch_and_equal_averages() -> Outcome {
    let trainer = || {
        Trainer::new(loss)
            .schedule_epochs(StepLR::new(1).gamma(0.5))
            .average(|model| Ok(AveragedModel::swa(model)?.use_buffers(true)))
    };
    alone(|| interrupted("epochs", trainer, batches, &[4, 5, 6, 11]))
}

#[test]
fn rates_that_fall_on_a_plateau() -> Outcome {
    let trainer = || {
        let plateau = ReduceLROnPlateau::new().patience(0_u64).threshold(10.0).factor(0.5);
        Trainer::new(loss).validate(|| batches(100), predict).reduce_on_plateau(plateau)
    };
    alone(|| interrupted("plateau", trainer, batches, &[3, 6, 12]))
}

/// A scale so large that the first steps overflow and are left out; it grows again in between.
fn in_f16() -> Run<'static> {
    let scaler = GradScaler::new_with(GradScalerOptions::new().init_scale(f64::powi(2.0, 24)).growth_interval(3_u64));
    Trainer::new(loss)
        .autocast(DType::F16)
        .scaler(scaler)
        .clip_grad_norm(1.0)
        .accumulate(2)
        .schedule(CosineAnnealingLR::new(12))
        .average(|model| AveragedModel::ema(model, 0.8))
}

#[test]
fn mixed_precision_with_a_scaler_that_leaves_steps_out() -> Outcome {
    alone(|| {
        interrupted("scaler", in_f16, batches, &[1, 4, 7])?;
        // It did leave some out, and not all: the averages say how many steps were made.
        let (mut model, mut optimizer, mut trainer) = (model(3)?, optimizer(), in_f16().epochs(EPOCHS).quiet());
        let fit = trainer.fit(&mut model, &mut optimizer, batches)?;
        let made = trainer.take_averaged().map_or(0, |average| average.n_averaged());
        assert!(0 < made && made < fit.steps(), "{made} of {} steps were made", fit.steps());
        Ok(())
    })
}

#[test]
fn batches_that_draw_from_the_models_random_numbers() -> Outcome {
    alone(|| interrupted("drawn", || Trainer::new(loss).accumulate(2), drawn, &[1, 4, 5, 6, 8]))
}

#[test]
fn the_averaged_model_is_evaluated_and_saved() -> Outcome {
    let folder = Folder::new("average")?;
    let constant = |model: &Linear, x: &Tensor| model.forward(x)?.sum(..);
    let (mut model, mut seen) = (Linear::new(1, 1)?, Vec::new());
    let mut trainer = Trainer::new(constant)
        .epochs(3)
        .average(AveragedModel::swa)
        .validate(|| Ok([Tensor::ones([1, 1])]), |model, x| Ok((model.forward(x)?, x.clone())))
        .checkpoints(&folder.0)
        .callback(|moment| {
            if moment.is_epoch {
                let now =
                    moment.model.weight.item::<f64>()? + moment.model.bias.as_ref().map_or(Ok(0.0), |b| b.item())?;
                seen.push((now, moment.value("val_loss").unwrap_or(f64::NAN)));
            }
            Ok(())
        })
        .quiet();
    trainer.fit(&mut model, &mut Sgd::new(0.5), |_| Ok([Tensor::ones([1, 1])]))?;
    let average = trainer.take_averaged().ok_or("there is an average")?;
    drop(trainer);
    let mut sum = 0.0;
    for (count, (now, measured)) in seen.into_iter().enumerate() {
        sum += now;
        assert!((measured - sum / (count + 1) as f64).abs() < 1e-5, "{measured} is not the mean's");
    }
    let checkpoint = Checkpoint::load(folder.0.join("last.safetensors"))?;
    let saved = checkpoint.part("average").and_then(|part| part.tensors.get("module.weight")).ok_or("a weight")?;
    assert!(saved.equal(&average.weight)?);
    let names: Vec<&str> = checkpoint.names().collect();
    assert_eq!(names, ["average", "model", "optimizer", "random", "trainer"]);
    Ok(())
}

#[test]
fn a_checkpoint_of_another_run_changes_nothing() -> Outcome {
    let folder = Folder::new("misfit")?;
    let trainer = |scheduled: bool| {
        let trainer = Trainer::new(loss).checkpoints(&folder.0).quiet();
        if scheduled { trainer.schedule(StepLR::new(1).gamma(0.1)) } else { trainer }
    };
    trainer(true).fit(&mut model(1)?, &mut optimizer(), batches)?;
    // A model of another form: neither it nor the optimiser, whose rate the schedule has set, is changed.
    let (mut other, mut adam) = (Linear::new(6, 3)?, optimizer());
    let before = other.weight.to_vec::<f32>()?;
    let mut misfit = Trainer::new(|model: &Linear, (x, y): &Batch| model.forward(x)?.cross_entropy(y))
        .schedule(LinearLR::warmup(10))
        .checkpoints(&folder.0);
    let error = misfit.resume(&mut other, &mut adam, batches).err().ok_or("it does not fit")?.to_string();
    assert!(error.contains("last.safetensors") && error.contains("model"), "{error}");
    assert_eq!((other.weight.to_vec::<f32>()?, adam.lrs()), (before, optimizer().lrs()));
    // Settings that the run had, or has not had.
    let refused = |mut trainer: Run<'_>, part: &str| -> Outcome {
        let error = trainer.resume(&mut model(1)?, &mut optimizer(), batches).err().ok_or("refused")?.to_string();
        assert!(error.contains(part), "{error:?} should say {part:?}");
        Ok(())
    };
    refused(trainer(false), "checkpoint has a part `schedule`")?;
    refused(trainer(true).scaler(GradScaler::new()), "no part named scaler")?;
    fs::write(folder.0.join("last.safetensors"), b"not a checkpoint")?;
    refused(trainer(true), "last.safetensors")
}

#[test]
fn a_run_that_has_stopped_early_stays_stopped() -> Outcome {
    let folder = Folder::new("early")?;
    let trainer = || Trainer::new(loss).epochs(50).lr(|_| 0.0).early_stopping(2).checkpoints(&folder.0).quiet();
    let one = || trainer().validate(|| batches(9), predict);
    let first = one().fit(&mut model(1)?, &mut optimizer(), batches)?;
    let again = one().resume(&mut model(2)?, &mut optimizer(), batches)?;
    assert_eq!((first.stop(), first.epochs()), (Stop::Early, again.epochs()));
    assert_eq!(again.stop(), Stop::Early);
    Ok(())
}

/// The run that is killed: slow enough that it is in the middle when the signal comes.
fn killed(folder: &Path, pause: Duration) -> Run<'static> {
    let started = folder.join("started");
    in_f16().epochs(EPOCHS).checkpoints(folder).save_every(1).quiet().callback(move |moment| {
        std::thread::sleep(pause);
        if moment.step == 3 {
            fs::write(&started, "")
                .map_err(|e| cotangent::Error::new(cotangent::ErrorKind::Io, "test", e.to_string()))?;
        }
        Ok(())
    })
}

/// Not a test: the program that the next test kills.
#[test]
#[ignore = "run by the test of kill -9"]
fn trains_until_it_is_killed() -> Outcome {
    let folder = PathBuf::from(std::env::var("COTANGENT_TEST_FOLDER")?);
    alone(|| {
        killed(&folder, Duration::from_millis(30)).fit(&mut model(3)?, &mut optimizer(), batches)?;
        Ok(())
    })
}

#[cfg(unix)]
#[test]
fn a_process_that_is_killed_is_resumed_bit_for_bit() -> Outcome {
    let folder = Folder::new("killed")?;
    let mut child = Command::new(std::env::current_exe()?)
        .args(["--ignored", "--exact", "resume::trains_until_it_is_killed"])
        .env("COTANGENT_TEST_FOLDER", &folder.0)
        .stdout(Stdio::null())
        .spawn()?;
    let begun = Instant::now();
    while !folder.0.join("started").exists() {
        assert!(begun.elapsed().as_secs() < 60 && child.try_wait()?.is_none(), "it has not begun");
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill()?;
    child.wait()?;
    alone(|| {
        let whole = Folder::new("not-killed")?;
        let mut expected = model(3)?;
        killed(&whole.0, Duration::ZERO).fit(&mut expected, &mut optimizer(), batches)?;
        let mut resumed = model(55)?;
        let fit = killed(&folder.0, Duration::ZERO).resume(&mut resumed, &mut optimizer(), batches)?;
        assert_eq!((fit.stop(), fit.epochs()), (Stop::Finished, EPOCHS));
        assert_eq!(bits(&resumed)?, bits(&expected)?);
        Ok(())
    })
}
