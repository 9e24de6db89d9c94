//! Graceful handling of Ctrl-C.

use crate::Result;
use cotangent_macros::named;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

/// While a value of this type lives, the first Ctrl-C (or SIGTERM, as schedulers send it) sets a flag, so that the program can
/// end after its step. The second ends the program at once. On a platform without signals the flag is never set.
///
/// It interrupts no operation: [`interrupt::Interrupt`](crate::interrupt::Interrupt) does, at the request of another thread.
///
/// ```
/// use cotangent::train::Interrupt;
/// let interrupt = Interrupt::new()?;
/// for step in 0..100 {
///     // .. a step of training ..
///     if interrupt.is_set() {
///         // .. save a checkpoint ..
///         break;
///     }
/// }
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Debug)]
pub struct Interrupt(());

/// The state of the signal handlers.
struct Signals {
    /// Whether there was a signal.
    noted: Arc<AtomicBool>,
    /// Whether the next signal ends the program.
    ends: Arc<AtomicBool>,
    alive: AtomicUsize,
}

static SIGNALS: LazyLock<Signals> = LazyLock::new(|| Signals {
    noted: Arc::default(),
    ends: Arc::new(AtomicBool::new(true)),
    alive: AtomicUsize::new(0),
});

/// Handlers are never removed: that would not restore the behaviour of the system before.
#[cfg(any(unix, windows))]
fn install(signals: &Signals) -> std::io::Result<()> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    use signal_hook::flag::{register, register_conditional_shutdown};
    for signal in [SIGINT, SIGTERM] {
        // In this order, so that the first signal does not see the flag that it sets.
        register_conditional_shutdown(signal, 128 + signal, signals.ends.clone())?;
        register(signal, signals.noted.clone())?;
        register(signal, signals.ends.clone())?;
    }
    Ok(())
}

#[cfg(not(any(unix, windows)))]
fn install(_: &Signals) -> std::io::Result<()> {
    Ok(())
}

impl Interrupt {
    /// Starts to handle signals.
    ///
    /// # Errors
    /// If the system refuses the handlers.
    #[named("Interrupt::new")]
    pub fn new() -> Result<Interrupt> {
        static INSTALLED: OnceLock<Result<(), String>> = OnceLock::new();
        let signals = &*SIGNALS;
        if let Err(error) = INSTALLED.get_or_init(|| install(signals).map_err(|error| error.to_string())) {
            crate::error::bail!(Backend, "Interrupt::new", "cannot install signal handlers: {error}");
        }
        if signals.alive.fetch_add(1, Ordering::SeqCst) == 0 {
            signals.noted.store(false, Ordering::SeqCst);
            signals.ends.store(false, Ordering::SeqCst);
        }
        Ok(Interrupt(()))
    }

    /// Whether there was a signal since [`new`](Self::new).
    pub fn is_set(&self) -> bool {
        SIGNALS.noted.load(Ordering::Relaxed)
    }
}

impl Drop for Interrupt {
    fn drop(&mut self) {
        if SIGNALS.alive.fetch_sub(1, Ordering::SeqCst) == 1 {
            SIGNALS.ends.store(true, Ordering::SeqCst);
        }
    }
}
