//! The seed of draws in a program that does not set one.

use crate::alone;
use cotangent::random::rng_state;
use std::process::Command;

/// In the child process of the test below, where this variable is set, it prints the seed.
const CHILD: &str = "COTANGENT_TEST_SEED_CHILD";

#[test]
fn tests_take_their_seed_from_a_variable() -> std::io::Result<()> {
    let _alone = alone();
    if std::env::var_os(CHILD).is_some() {
        println!("seed: {}", rng_state().0);
        return Ok(());
    }
    let run = |seed: Option<&str>| -> std::io::Result<(bool, String)> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--exact", "seed::tests_take_their_seed_from_a_variable", "--nocapture"]).env(CHILD, "1");
        match seed {
            Some(seed) => command.env("COTANGENT_SEED", seed),
            None => command.env_remove("COTANGENT_SEED"),
        };
        let output = command.output()?;
        let text = [output.stdout, output.stderr].concat();
        Ok((output.status.success(), String::from_utf8_lossy(&text).into_owned()))
    };
    for (seed, expected) in [
        (Some("17"), "seed: 17\n"),
        (Some("18446744073709551615"), "seed: 18446744073709551615\n"),
        (None, "seed: 0\n"),
    ] {
        let (passed, text) = run(seed)?;
        assert!(passed && text.contains(expected), "{seed:?}: {text}");
    }
    for wrong in ["", "-1", "seven"] {
        let (passed, text) = run(Some(wrong))?;
        assert!(!passed && text.contains(&format!("must be an integer from 0 to 2^64 - 1, got {wrong:?}")), "{text}");
    }
    Ok(())
}
