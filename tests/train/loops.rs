//! Training: metrics against scikit-learn, logs in other readers, reports and profiles.

use cotangent::nn::{Dropout, Forward, Linear, Module, Part, PartMut, ReLU, Sequential, Visit, Visitor};
use cotangent::optim::{AdamW, Sgd};
use cotangent::train::*;
use cotangent::{DType, ErrorKind, Generator, Result, Tensor, s, tensor, with_generator};
use serde_json::Value;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::json;

/// A folder that is removed when its guard is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> std::io::Result<Folder> {
        let path = std::env::temp_dir().join(format!("cotangent-train-{name}-{}", std::process::id()));
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

fn fixtures() -> Value {
    json::parse(include_str!("../fixtures/metrics.json"))
}

fn floats(values: &Value, shape: impl Into<cotangent::Shape>) -> Result<Tensor> {
    Tensor::from_vec(json::list(values).iter().map(json::float).collect::<Vec<f64>>(), shape)
}

fn integers(values: &Value) -> Result<Tensor> {
    let values: Vec<i64> = json::list(values).iter().map(|value| json::integer(value) as i64).collect();
    let n = values.len();
    Tensor::from_vec(values, [n])
}

/// The value of a metric after the batches of a case; computed twice, to test the reset.
fn over_batches(metric: &mut dyn Metric, case: &Value, prediction: &Tensor, target: &Tensor) -> Result<f64> {
    let mut first = None;
    for _ in 0..2 {
        metric.reset();
        assert!(metric.compute().is_err_and(|error| error.kind() == ErrorKind::Value), "of nothing");
        let mut from = 0;
        for end in json::list(&case["ends"]) {
            let end = json::integer(end) as isize;
            metric.update(&prediction.index(s![from..end])?, &target.index(s![from..end])?)?;
            from = end;
        }
        let value = metric.compute()?;
        assert_eq!(*first.get_or_insert(value), value);
    }
    metric.compute()
}

#[track_caller]
fn assert_near(name: &str, got: f64, expected: &Value) {
    let expected = json::float(expected);
    assert!((got - expected).abs() <= 1e-9 * expected.abs().max(1.0), "{name}: {got} instead of {expected}");
}

#[test]
fn metrics_of_classes_are_scikit_learns() -> Result<()> {
    for case in json::list(&fixtures()["classes"]) {
        let classes = json::integer(&case["classes"]) as usize;
        let target = integers(&case["target"])?;
        let scores = floats(&case["scores"], [target.numel(), classes])?;
        for (name, expected) in case["values"].as_object().into_iter().flatten() {
            let mut parts = name.split('_');
            let (kind, average) = (parts.next().unwrap_or_default(), parts.next());
            let average = match average {
                Some("micro") => Average::Micro,
                Some("macro") => Average::Macro,
                Some("weighted") => Average::Weighted,
                _ => Average::Binary,
            };
            let mut metric: Box<dyn Metric> = match kind {
                "accuracy" => Box::new(Accuracy::new()),
                "top1" => Box::new(TopKAccuracy::new(1)?),
                "top2" => Box::new(TopKAccuracy::new(2)?),
                "top3" => Box::new(TopKAccuracy::new(3)?),
                "precision" => Box::new(Precision::new(classes, average)?),
                "recall" => Box::new(Recall::new(classes, average)?),
                "f1" => Box::new(F1::new(classes, average)?),
                "auc" => Box::new(RocAuc::one_vs_rest(classes, average)?),
                other => unreachable!("{other}"),
            };
            let got = over_batches(&mut *metric, case, &scores, &target)?;
            assert_near(&format!("{} {name}", case["name"]), got, expected);
        }
        let mut matrix = ConfusionMatrix::new(classes)?;
        let accuracy = over_batches(&mut matrix, case, &scores, &target)?;
        assert_near("accuracy of the matrix", accuracy, &case["values"]["accuracy"]);
        assert!(matrix.to_tensor()?.reshape([-1])?.equal(&integers(&case["confusion"])?)?, "{matrix}");
    }
    Ok(())
}

#[test]
fn metrics_of_numbers_are_scikit_learns() -> Result<()> {
    let all = fixtures();
    for case in json::list(&all["binary"]) {
        let target = integers(&case["target"])?;
        let scores = floats(&case["scores"], [target.numel()])?;
        assert_near("auc", over_batches(&mut RocAuc::binary(), case, &scores, &target)?, &case["auc"]);
    }
    for case in json::list(&all["numbers"]) {
        let shape: Vec<usize> = json::list(&case["shape"]).iter().map(|n| json::integer(n) as usize).collect();
        let (prediction, target) = (floats(&case["prediction"], shape.clone())?, floats(&case["target"], shape)?);
        let metrics: [Box<dyn Metric>; 4] = [
            Box::new(MeanAbsoluteError::new()),
            Box::new(MeanSquaredError::new()),
            Box::new(RootMeanSquaredError::new()),
            Box::new(R2Score::new()),
        ];
        for mut metric in metrics {
            if let Some(expected) = case["values"].get(metric.name()) {
                let got = over_batches(&mut *metric, case, &prediction, &target)?;
                assert_near(&format!("{} {}", case["name"], metric.name()), got, expected);
            }
        }
    }
    for case in json::list(&all["perplexity"]) {
        let classes = json::integer(&case["classes"]) as usize;
        let target = integers(&case["target"])?;
        let logits = floats(&case["scores"], [target.numel(), classes])?;
        let got = over_batches(&mut Perplexity::new(), case, &logits, &target)?;
        assert_near("perplexity", got, &case["perplexity"]);
    }
    Ok(())
}

#[test]
fn what_is_no_prediction_is_refused_and_counts_nothing() -> Result<()> {
    let refused = |metric: &mut dyn Metric, prediction: &Tensor, target: &Tensor, part: &str| {
        let error = metric.update(prediction, target).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(part) && error.contains("::update: "), "{error:?} should say {part:?}");
        assert!(metric.compute().is_err(), "nothing was counted");
    };
    let (scores, classes) = (Tensor::zeros([3, 4])?, tensor!([0, 1, 2])?);
    refused(&mut Accuracy::new(), &scores, &tensor!([0, 1])?, "got [3, 4] for targets [2]");
    refused(&mut Accuracy::new(), &scores, &tensor!([0.0, 1.0, 2.0])?, "classes must be integers");
    refused(&mut Accuracy::new(), &scores, &tensor!([0, 1, 4])?, "target 2 is class 4, out of range for 4");
    refused(&mut Accuracy::new(), &tensor!([0.2, -3.0])?, &tensor!([0, 1])?, "must be probabilities, got -3");
    refused(&mut TopKAccuracy::new(5)?, &scores, &classes, "k must be at most 4, the number of classes, got 5");
    refused(&mut Precision::new(3, Average::Macro)?, &scores, &classes, "expected scores of 3 classes, got 4");
    refused(&mut F1::new(3, Average::Macro)?, &tensor!([0.1, 0.2, 0.3])?, &classes, "[n, 3, ..]");
    refused(&mut ConfusionMatrix::new(2)?, &tensor!([0, 1, 1])?, &classes, "target 2 is class 2");
    refused(
        &mut RocAuc::one_vs_rest(4, Average::Macro)?,
        &scores,
        &classes,
        "must be probabilities, those of example 0 sum to 0",
    );
    refused(&mut RocAuc::binary(), &tensor!([0.5, f32::NAN])?, &tensor!([0, 1])?, "score 1 is NaN");
    // Compared each with each this would be a number, too.
    refused(&mut MeanSquaredError::new(), &Tensor::zeros([3, 1])?, &Tensor::zeros([3])?, "[3, 1]");
    refused(&mut R2Score::new(), &Tensor::zeros([1])?, &Tensor::zeros([1, 2])?, "must have the same shape");
    refused(&mut Perplexity::new(), &Tensor::zeros([2, 5, 7])?, &Tensor::zeros_with([2, 7], DType::I64)?, "vocabulary");
    for (classes, average) in [(0, Average::Macro), (usize::MAX, Average::Micro), (3, Average::Binary)] {
        assert!(Precision::new(classes, average).is_err());
    }
    assert!(ConfusionMatrix::new(usize::MAX).is_err() && RocAuc::one_vs_rest(1, Average::Macro).is_err());
    let mut one = RocAuc::binary();
    one.update(&tensor!([0.5, 0.25])?, &tensor!([1, 1])?)?;
    assert!(one.compute().is_err_and(|error| error.to_string().contains("got only examples of it")));
    Ok(())
}

#[test]
fn ignored_targets_and_nans_are_no_hits() -> Result<()> {
    let scores = tensor!([[0.0, 1.0, 2.0], [5.0, 1.0, 2.0], [f32::NAN, 1.0, 2.0]])?;
    let target = tensor!([2, -100, 0])?;
    let mut accuracy = Accuracy::new().ignore_index(-100);
    accuracy.update(&scores, &target)?;
    let mut top = TopKAccuracy::new(2)?.ignore_index(-100);
    top.update(&scores, &target)?;
    assert_eq!(top.compute()?, 0.5, "a score that is NaN is not among the highest");
    // Classes of images: [n, classes, height, width] for [n, height, width].
    let mut pixels = Accuracy::new();
    pixels.update(&Tensor::zeros([2, 3, 4, 5])?, &Tensor::zeros_with([2, 4, 5], DType::I64)?)?;
    assert_eq!(pixels.compute()?, 1.0);
    Ok(())
}

#[test]
fn csv_gets_columns_as_they_come_and_goes_on() -> Result<(), Box<dyn Error>> {
    let folder = Folder::new("csv")?;
    let path = folder.0.join("log.csv");
    let mut log = CsvLog::create(&path)?;
    log.log(1, &[("loss", 0.5), ("odd, \"name\"", 1e-300)])?;
    log.log(2, &[("loss", f64::NAN)])?;
    drop(log);
    let mut log = CsvLog::append(&path)?;
    log.log(3, &[("val_loss", -f64::INFINITY), ("loss", 0.1)])?;
    assert!(log.log(4, &[("loss", 1.0), ("loss", 2.0)]).is_err(), "one name twice");
    assert!(log.log(4, &[("step", 1.0)]).is_err());
    drop(log);
    let text = fs::read_to_string(&path)?;
    let expected = "step,loss,\"odd, \"\"name\"\"\",val_loss\n1,0.5,1e-300,\n2,nan,,\n3,0.1,,-inf\n";
    assert_eq!(text, expected);
    fs::write(&path, "a,b\n1,2\n")?;
    assert!(CsvLog::append(&path).is_err_and(|error| error.kind() == ErrorKind::Format));
    assert!(CsvLog::create(folder.0.join("none/log.csv")).is_err_and(|error| error.kind() == ErrorKind::Io));
    Ok(())
}

#[test]
fn jsonl_is_json_on_every_line() -> Result<(), Box<dyn Error>> {
    let folder = Folder::new("jsonl")?;
    let path = folder.0.join("log.jsonl");
    JsonlLog::create(&path)?.log(1, &[("a \"b\"\u{1}", 0.1), ("x", f64::INFINITY)])?;
    // A run that was killed in the middle of a line.
    fs::write(&path, fs::read_to_string(&path)? + "{\"st")?;
    JsonlLog::append(&path)?.log(2, &[("x", -0.0)])?;
    let text = fs::read_to_string(&path)?;
    let lines: Vec<Option<Value>> = text.lines().map(|line| serde_json::from_str(line).ok()).collect();
    let first = lines[0].as_ref().ok_or("a whole line")?;
    assert_eq!(
        (first["step"].as_u64(), first["a \"b\"\u{1}"].as_f64(), first["x"].as_str()),
        (Some(1), Some(0.1), Some("Infinity"))
    );
    assert!(lines[1].is_none() && lines[2].as_ref().is_some_and(|line| line["step"] == 2));
    Ok(())
}

/// The Python with TensorBoard, if there is one: from the environment variable, or from the path.
fn python_with(package: &str, variable: &str) -> Option<String> {
    let python = std::env::var(variable).unwrap_or_else(|_| "python3".into());
    let there = Command::new(&python).args(["-c", &format!("import {package}")]).output();
    there.is_ok_and(|output| output.status.success()).then_some(python)
}

#[test]
fn tensorboard_reads_its_own_events() -> Result<(), Box<dyn Error>> {
    let folder = Folder::new("tensorboard")?;
    let mut board = TensorBoard::create(folder.0.join("run"))?;
    for step in 0..5 {
        board.log(step, &[("loss", 1.0 / (step + 1) as f64), ("lr", 1e-3)])?;
    }
    let values = tensor!([0.0, 1.0, 1.0, 2.0, 3.0, f32::NAN])?;
    board.histogram("weights", 3, &values)?;
    let image = with_generator(&mut Generator::seed(1), || Tensor::rand([3, 9, 14]))?;
    board.image("picture", 4, &image)?;
    board.text("notes", 0, "a *first* try, ünïcode")?;
    assert!(board.histogram("weights", 4, &tensor!([f32::NAN])?).is_err());
    assert!(board.image("picture", 4, &Tensor::zeros([5, 2, 2])?).is_err());
    assert!(board.scalar("loss", u64::MAX, 1.0).is_err());
    board.flush()?;
    let Some(python) = python_with("tensorboard", "COTANGENT_TENSORBOARD_PYTHON") else {
        println!("skipped: there is no Python with TensorBoard");
        assert!(std::env::var_os("COTANGENT_TENSORBOARD_PYTHON").is_none(), "it was asked for");
        return Ok(());
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools/read_events.py");
    let output = Command::new(python).arg(script).arg(folder.0.join("run")).output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read: Value = serde_json::from_slice(&output.stdout)?;
    let losses: Vec<f64> = json::list(&read["scalars"]["loss"]).iter().map(|point| json::float(&point[1])).collect();
    assert_eq!(losses, [1.0, 0.5, f64::from(1.0_f32 / 3.0), 0.25, f64::from(0.2_f32)]);
    let histogram = &read["histograms"]["weights"];
    assert_eq!(
        (histogram["num"].as_f64(), histogram["sum"].as_f64(), histogram["min"].as_f64()),
        (Some(5.0), Some(7.0), Some(0.0))
    );
    assert_eq!(json::list(&histogram["bucket"]).iter().map(json::float).sum::<f64>(), 5.0);
    // The pixels, decoded by another program's reader of PNG files.
    let pixels: Vec<i64> =
        json::list(&read["images"]["picture"]["pixels"]).iter().map(|p| json::integer(p) as i64).collect();
    let expected = image.permute([1, 2, 0])?.mul(255)?.round()?.to_dtype(DType::I64)?.to_vec::<i64>()?;
    assert_eq!(pixels, expected);
    assert_eq!(read["texts"]["notes"], "a *first* try, ünïcode");
    Ok(())
}

fn model() -> Result<Sequential> {
    Ok(Sequential::new().add(Linear::new(6, 8)?).add(ReLU).add(Linear::new(8, 3)?))
}

#[test]
fn a_report_holds_everything_and_asks_for_nothing() -> Result<(), Box<dyn Error>> {
    let folder = Folder::new("report")?;
    let (model, mut phases) = (model()?, Phases::new());
    let (x, y) = (Tensor::randn([12, 6])?, Tensor::randint(0, 3, [12])?);
    let mut report = Report::new("A <run> & </script>");
    report.model(&model);
    for step in 0..4 {
        let loss = phases.run("forward", || model.forward(&x)?.cross_entropy(&y))?;
        if step == 0 {
            report.graph(&loss, &model)?;
        }
        phases.run("backward", || loss.backward())?;
        report.norms(step, &model)?;
        report.log(step, &[("loss", loss.item()?), ("val_loss", f64::NAN)])?;
        assert!(report.graph(&loss, &model).is_err_and(|error| error.to_string().contains("freed")));
    }
    let (mut matrix, mut examples) = (ConfusionMatrix::new(3)?, Examples::new(3)?);
    let scores = model.forward(&x)?;
    matrix.update(&scores, &y)?;
    assert!(report.examples(examples.clone()).is_err(), "there is no matrix yet");
    examples.update(&Tensor::rand([12, 5, 4])?, &scores, &y)?;
    assert!(report.confusion(&matrix, &["one"]).is_err());
    report.confusion(&matrix, &["a", "b", "</script>"])?;
    report.examples(examples)?;
    report.phases(&phases);
    report.fact("accuracy", "<90 %>");
    let path = folder.0.join("report.html");
    report.save(&path)?;
    let html = fs::read_to_string(&path)?;
    assert_eq!(html.matches("</script>").count(), 2, "text does not end a script");
    assert!(html.contains("&lt;90 %&gt;") && html.contains("0.weight") && html.contains("data:image/png"));
    assert!(!html.contains("http://") || html.matches("http://").count() == html.matches("http://www.w3.org/").count());
    assert!(!html.contains("https://") && html.contains("default-src 'none'"));
    let data = html.split("id=\"data\">").nth(1).and_then(|rest| rest.split("</script>").next()).ok_or("data")?;
    let data: Value = serde_json::from_str(data)?;
    assert_eq!(data["charts"][0]["series"][1]["y"], serde_json::json!([null, null, null, null]));
    assert!(phases.times().all(|(_, time)| !time.is_zero()));
    Ok(())
}

/// Some batches, the same for an epoch's number.
fn batches(epoch: u64) -> Result<Vec<Result<(Tensor, Tensor)>>> {
    let mut generator = Generator::seed(epoch);
    let mut batch = || Ok((generator.randn([5, 6])?, generator.randint(0, 3, [5])?));
    Ok((0..4).map(|_| batch()).collect())
}

fn loss(model: &Sequential, (x, y): &(Tensor, Tensor)) -> Result<Tensor> {
    model.forward(x)?.cross_entropy(y)
}

fn with_dropout() -> Result<(Sequential, AdamW)> {
    cotangent::manual_seed(3);
    Ok((model()?.add(Dropout::new(0.2)?), AdamW::new(1e-2)))
}

#[test]
fn gathered_batches_are_one_batch() -> Result<()> {
    with_generator(&mut Generator::seed(0), gathered_and_not)
}

fn gathered_and_not() -> Result<()> {
    let (x, y) = (Tensor::randn([6, 6])?, Tensor::randint(0, 3, [6])?);
    let part = |from: isize, to: isize| Ok((x.index(s![from..to])?, y.index(s![from..to])?));
    let mut weights = Vec::new();
    // The third way leaves a batch over, which is a step with all of its gradient.
    for (accumulate, pieces) in
        [(1, vec![(0, 6)]), (3, vec![(0, 2), (2, 4), (4, 6)]), (4, vec![(0, 2), (2, 4), (4, 6)])]
    {
        cotangent::manual_seed(5);
        let (mut model, mut optimizer) = (model()?, Sgd::new(0.1));
        let mut trainer = Trainer::new(loss).accumulate(accumulate).quiet();
        let fit = trainer.fit(&mut model, &mut optimizer, |_| {
            Ok(pieces.iter().map(|&(from, to)| part(from, to)).collect::<Vec<_>>())
        })?;
        assert_eq!(fit.steps(), 1);
        weights.push(model.parameters()[0].to_vec::<f32>()?);
    }
    for other in &weights[1..] {
        assert!(weights[0].iter().zip(other).all(|(a, b)| (a - b).abs() < 1e-6), "{weights:?}");
    }
    Ok(())
}

#[test]
fn validation_stops_early_and_keeps_the_best() -> Result<(), Box<dyn Error>> {
    with_generator(&mut Generator::seed(0), || {
        let folder = Folder::new("early")?;
        let (mut model, mut optimizer) = with_dropout()?;
        let (mut epochs, mut report) = (Vec::new(), Report::new("early"));
        let csv = folder.0.join("log.csv");
        let fit = Trainer::new(loss)
            .epochs(100)
            // So small that nothing improves.
            .lr(|_| 0.0)
            .validate(|| batches(0), |model, (x, y)| Ok((model.forward(x)?, y.clone())))
            .metric(Accuracy::new())
            .monitor("val_accuracy")
            .early_stopping(3)
            .checkpoints(&folder.0)
            .log(CsvLog::create(&csv)?)
            .log_every(2)
            .report(&mut report)
            .callback(|moment| {
                if moment.is_epoch {
                    epochs.push((moment.epoch, moment.value("val_accuracy")));
                    assert!(moment.model.is_training(), "validation is over");
                }
                Ok(())
            })
            .quiet()
            .fit(&mut model, &mut optimizer, batches)?;
        assert_eq!((fit.stop(), fit.epochs(), epochs.len()), (Stop::Early, 4, 4));
        assert_eq!(fit.best(), fit.value("val_accuracy"));
        let text = fs::read_to_string(csv)?;
        assert_eq!(text.lines().next(), Some("step,loss,lr,val_loss,val_accuracy"));
        assert_eq!(text.lines().count(), 1 + 4 * 2 + 4, "{text}");
        let html = report.html();
        for part in ["id=\"curves\"", "id=\"norms\"", "id=\"phases\"", "id=\"model\"", "id=\"graph\"", "validation"] {
            assert!(html.contains(part), "{part}");
        }
        Ok(())
    })
}

#[test]
fn a_trainer_refuses_what_cannot_be_meant() -> Result<()> {
    with_generator(&mut Generator::seed(0), || {
        let refused = |mut trainer: Trainer<'_, Sequential, (Tensor, Tensor)>, part: &str| {
            let (mut model, mut optimizer) = with_dropout()?;
            let error = trainer
                .fit(&mut model, &mut optimizer, batches)
                .err()
                .map(|error| error.to_string())
                .unwrap_or_default();
            assert!(error.contains(part), "{error:?} should say {part:?}");
            Result::Ok(())
        };
        refused(Trainer::new(loss).accumulate(0), "accumulate must be positive")?;
        refused(Trainer::new(loss).save_every(1), "save_every requires a folder")?;
        refused(Trainer::new(loss).metric(Accuracy::new()), "metrics require validation")?;
        refused(Trainer::new(loss).monitor("val_loss"), "monitor must be one of loss, got val_loss")?;
        refused(Trainer::new(|model, batch| loss(model, batch)?.mul(f64::NAN)), "loss is NaN at step 1 of epoch 1")?;
        refused(
            Trainer::new(|model: &Sequential, (x, _): &(Tensor, Tensor)| model.forward(x)),
            "loss must be one number, got shape [5, 3]",
        )?;
        refused(
            Trainer::new(loss).callback(|_| Err(cotangent::Error::new(ErrorKind::Value, "mine", "enough"))),
            "mine: enough",
        )?;
        let (mut model, mut optimizer) = with_dropout()?;
        assert!(
            Trainer::new(loss)
                .resume(&mut model, &mut optimizer, batches)
                .is_err_and(|e| e.to_string().contains("checkpoints"))
        );
        Ok(())
    })
}

/// Not a test: the program that the next test interrupts.
#[test]
#[ignore = "run by the test of Ctrl-C"]
fn trains_until_it_is_interrupted() -> Result<(), Box<dyn Error>> {
    let folder = std::env::var("COTANGENT_TEST_FOLDER")?;
    let (mut model, mut optimizer) = with_dropout()?;
    let mut trainer = Trainer::new(loss).epochs(u64::MAX).checkpoints(&folder).callback(|moment| {
        if moment.step == 2 {
            fs::write(Path::new(&folder).join("started"), "")
                .map_err(|e| cotangent::Error::new(ErrorKind::Value, "test", e.to_string()))?;
        }
        Ok(())
    });
    let fit = trainer.fit(&mut model, &mut optimizer, batches)?;
    assert_eq!(fit.stop(), Stop::Interrupted);
    fs::write(Path::new(&folder).join("steps"), fit.steps().to_string())?;
    Ok(())
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_after_the_step_and_saves() -> Result<(), Box<dyn Error>> {
    with_generator(&mut Generator::seed(0), || {
        let folder = Folder::new("interrupt")?;
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--ignored", "--exact", "loops::trains_until_it_is_interrupted"])
            .env("COTANGENT_TEST_FOLDER", &folder.0)
            .stdout(std::process::Stdio::null())
            .spawn()?;
        let begun = std::time::Instant::now();
        while !folder.0.join("started").exists() {
            assert!(begun.elapsed().as_secs() < 60 && child.try_wait()?.is_none(), "it has not begun");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status()?.success());
        assert!(child.wait()?.success());
        let steps: u64 = fs::read_to_string(folder.0.join("steps"))?.parse()?;
        let (mut model, mut optimizer) = with_dropout()?;
        let mut trainer = Trainer::new(loss).max_steps(steps + 3).epochs(u64::MAX).checkpoints(&folder.0).quiet();
        let fit = trainer.resume(&mut model, &mut optimizer, batches)?;
        assert_eq!(fit.steps(), steps + 3);
        Ok(())
    })
}

#[test]
fn parts_that_were_in_evaluation_stay_there() -> Result<()> {
    let mut model = Sequential::new().add(Dropout::new(0.5)?).add(Dropout::new(0.5)?);
    model.train();
    let mut first = true;
    model.visit_mut(&mut Visitor::new(&mut |_, part| {
        if let PartMut::Training(mode) = part {
            *mode = !std::mem::replace(&mut first, false);
        }
    }));
    in_eval(&mut model, |model| {
        assert!(!model.is_training() && !cotangent::autograd::is_grad_enabled());
        Ok(())
    })?;
    let mut modes = Vec::new();
    model.visit(&mut Visitor::new(&mut |_, part| {
        if let Part::Training(mode) = part {
            modes.push(mode);
        }
    }));
    assert_eq!(modes, [false, true]);
    Ok(())
}
