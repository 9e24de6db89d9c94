//! The profiler, which looks at all threads.

use crate::{alone, json};
use cotangent::nn::{Forward, Linear, ReLU, Sequential};
use cotangent::profile::{Pass, Row};
use cotangent::{Device, Result, Tensor, memory, profile};
use serde_json::Value;
use std::error::Error;
use std::fs;
use std::time::Duration;

fn model() -> Result<Sequential> {
    Ok(Sequential::new().add(Linear::new(6, 8)?).add(ReLU).add(Linear::new(8, 3)?))
}

#[test]
fn selves_add_up_and_chains_are_rows() -> Result<()> {
    let _alone = alone();
    let x = Tensor::randn([128, 128])?.requires_grad_(true)?;
    let (_, profile) = profile(|| x.mul(&x)?.add(1)?.tanh()?.sum(..)?.backward())?;
    let rows = profile.rows();
    let own: Duration = rows.iter().map(Row::self_time).sum();
    assert!(own <= profile.wall_time() && own > Duration::ZERO, "{own:?} of {:?}", profile.wall_time());
    let deferred = rows.iter().find(|row| row.name() == "mul" && row.pass() == Pass::Forward);
    assert_eq!(deferred.map(|row| (row.calls(), row.deferred())), Some((1, 1)), "{profile}");
    assert!(rows.iter().any(|row| row.name().starts_with("fused(mul, add, tanh")), "{profile}");
    assert!(rows.iter().any(|row| row.name() == "grad of tanh" && row.pass() == Pass::Backward), "{profile}");
    assert!(rows.iter().any(|row| row.name() == "accumulate_grad"), "{profile}");
    Ok(())
}

#[test]
fn memory_is_that_of_the_op_and_the_peak_of_the_device_stays() -> Result<()> {
    let _alone = alone();
    let x = Tensor::ones([64, 64])?;
    drop(Tensor::zeros([1 << 20])?);
    let before = memory::stats(Device::Cpu)?.peak();
    let (y, profile) = profile(|| x.matmul(&x))?;
    let row = profile.rows().into_iter().find(|row| row.name() == "matmul");
    let (grown, peak) = row.map(|row| (row.memory(), row.peak_memory())).unwrap_or_default();
    assert!((4 * 64 * 64..5 * 64 * 64).contains(&grown) && peak as i64 >= grown, "{grown} {peak}");
    assert_eq!(memory::stats(Device::Cpu)?.peak(), before);
    drop(y);
    Ok(())
}

#[test]
fn a_second_profile_is_refused_and_a_failed_one_ends() -> Result<()> {
    let _alone = alone();
    let nested = profile(|| profile(|| Ok(())).map(|_| ()));
    assert!(nested.is_err_and(|error| error.to_string().contains("one at a time")));
    assert!(std::panic::catch_unwind(|| profile::<()>(|| std::panic::panic_any("inside"))).is_err());
    let failed = profile(|| Tensor::ones([2])?.reshape([3]));
    assert!(failed.is_err_and(|error| error.op() == "reshape"));
    let (_, empty) = profile(|| Ok(()))?;
    assert!(empty.rows().is_empty());
    Ok(())
}

#[test]
fn a_trace_is_of_nested_bars() -> Result<(), Box<dyn Error>> {
    let _alone = alone();
    let (model, x) = (model()?, Tensor::randn([12, 6])?);
    let (_, profile) = profile(|| {
        let loss = cotangent::profile::scope("forward", || model.forward(&x)?.square()?.mean(..))?;
        loss.backward()
    })?;
    let rows = profile.rows();
    let find = |name: &str, pass| rows.iter().find(|row| row.name() == name && row.pass() == pass);
    let scope = find("forward", Pass::Forward).ok_or("the scope")?;
    let linear = find("linear", Pass::Forward).ok_or("the layers' operation")?;
    assert_eq!((linear.calls(), scope.calls()), (2, 1));
    assert!(linear.total_time() <= scope.total_time() && scope.self_time() <= scope.total_time());
    assert!(find("grad of linear", Pass::Backward).is_some_and(|row| row.calls() == 2), "{profile}");
    let path = std::env::temp_dir().join(format!("cotangent-trace-{}.json", std::process::id()));
    profile.save_trace(&path)?;
    let text = fs::read_to_string(&path)?;
    fs::remove_file(&path)?;
    let trace: Value = serde_json::from_str(&text)?;
    let bars: Vec<(i128, f64, f64)> = json::list(&trace["traceEvents"])
        .iter()
        .filter(|event| event["ph"] == "X")
        .map(|event| (json::integer(&event["tid"]), json::float(&event["ts"]), json::float(&event["dur"])))
        .collect();
    assert!(bars.len() > 8);
    for (at, a) in bars.iter().enumerate() {
        for b in bars[at + 1..].iter().filter(|b| a.0 == b.0) {
            let apart = a.1 + a.2 <= b.1 + 0.01 || b.1 + b.2 <= a.1 + 0.01;
            let inside = b.1 >= a.1 - 0.01 && b.1 + b.2 <= a.1 + a.2 + 0.01;
            assert!(apart || inside, "{a:?} {b:?}");
        }
    }
    assert!(json::list(&trace["traceEvents"]).iter().any(|event| event["ph"] == "C"));
    Ok(())
}

#[test]
fn the_time_on_a_gpu_is_measured_there() -> Result<()> {
    let _alone = alone();
    let Some(gpu) = crate::checks::gpu() else { return Ok(()) };
    let x = Tensor::randn([2048, 2048])?.to_device(gpu)?.requires_grad_(true)?;
    let step = || {
        let loss = x.matmul(&x)?.mul(2)?.tanh()?.sum(..)?;
        loss.backward()?;
        loss.item::<f64>()
    };
    // The first call compiles kernels.
    step()?;
    let (_, profile) = profile(step)?;
    println!("{profile}");
    let rows = profile.rows();
    let on_gpu = |name: &str| rows.iter().find(|row| row.name() == name).and_then(Row::gpu_time).unwrap_or_default();
    // 17 GFLOP: more than 10 µs on whatever GPU there is, and less than the whole.
    assert!(on_gpu("matmul") > Duration::from_micros(10), "{profile}");
    let all: Duration = rows.iter().filter_map(Row::gpu_time).sum();
    assert!(all <= profile.wall_time() + Duration::from_millis(1), "{profile}");
    assert!(rows.iter().any(|row| row.name().starts_with("fused(mul") && row.gpu_time().is_some()), "{profile}");
    let memory = rows.iter().find(|row| row.name() == "matmul" && row.pass() == Pass::Forward).map(Row::memory);
    assert!(memory.is_some_and(|bytes| bytes >= 4 * 2048 * 2048), "{profile}");
    Ok(())
}
