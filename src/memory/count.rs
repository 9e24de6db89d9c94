//! Counters of the bytes in use and of their peak, without an atomic read-modify-write for each tiny tensor.
//!
//! An atomic addition costs about 10 ns, as much as the rest of a small allocation. So a thread that frees a small buffer does
//! not subtract it at once, but notes it as *owed* in its account. The next request on that thread is first offset against what
//! it owes. Invariants:
//!
//! 1. The bytes in use are `counted` minus all that is owed. So [`Counter::current`] is exact.
//! 2. `counted` rises only after the thread that raises it has paid what it owes. So with one allocating thread the peak of
//!    `counted` is exactly the peak of the bytes in use. With several threads it is never too low, and too high by at most
//!    [`CREDIT`] for each other thread.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The most that a thread may owe: a thousand tiny tensors.
const CREDIT: usize = 64 << 10;

/// The bytes in use on a device. On a separate cache line, since all threads write here.
#[repr(align(128))]
pub(crate) struct Counter {
    counted: AtomicUsize,
    peak: AtomicUsize,
    accounts: Mutex<Vec<Arc<Account>>>,
}

/// What one thread owes. Only that thread writes it, so plain loads and stores suffice; others read it for the statistics.
pub(crate) struct Account {
    owed: AtomicUsize,
}

impl Counter {
    pub(crate) const fn new() -> Self {
        Counter { counted: AtomicUsize::new(0), peak: AtomicUsize::new(0), accounts: Mutex::new(Vec::new()) }
    }

    /// Opens an account for the calling thread.
    #[cold]
    #[inline(never)]
    pub(crate) fn open(&self) -> Arc<Account> {
        let account = Arc::new(Account { owed: AtomicUsize::new(0) });
        self.accounts().push(account.clone());
        account
    }

    /// Pays what is owed, and closes the account.
    pub(crate) fn close(&self, account: &Arc<Account>) {
        self.materialize(account);
        self.accounts().retain(|other| !Arc::ptr_eq(other, account));
    }

    /// Pays what is owed.
    pub(crate) fn materialize(&self, account: &Account) {
        let owed = account.owed.load(Relaxed);
        // Invariant 1 holds before and after, but not between the two. In this order a reader never sees too little in use.
        account.owed.store(0, Relaxed);
        self.counted.fetch_sub(owed, SeqCst);
    }

    /// Counts bytes as in use, after they were handed out.
    #[inline]
    pub(crate) fn add(&self, account: Option<&Account>, bytes: usize) {
        let owed = account.map_or(0, |account| account.owed.load(Relaxed));
        if let Some(account) = account {
            account.owed.store(owed.saturating_sub(bytes), Relaxed);
        }
        if owed < bytes {
            let more = bytes - owed;
            let now = self.counted.fetch_add(more, SeqCst) + more;
            if now > self.peak.load(SeqCst) {
                self.peak.fetch_max(now, SeqCst);
            }
        }
    }

    /// Counts bytes as no longer in use, before they are released.
    #[inline]
    pub(crate) fn sub(&self, account: Option<&Account>, bytes: usize) {
        if let Some(account) = account {
            let owed = account.owed.load(Relaxed) + bytes;
            if owed <= CREDIT {
                return account.owed.store(owed, Relaxed);
            }
        }
        self.counted.fetch_sub(bytes, SeqCst);
    }

    /// The bytes in use.
    pub(crate) fn current(&self) -> usize {
        let counted = self.counted.load(SeqCst);
        let owed = self.accounts().iter().map(|account| account.owed.load(Relaxed)).sum();
        counted.saturating_sub(owed)
    }

    /// The most that was in use since the last reset.
    pub(crate) fn peak(&self) -> usize {
        self.peak.load(SeqCst)
    }

    /// Makes what is in use now the peak.
    pub(crate) fn reset_peak(&self) {
        // The second line is for a thread that counted between the load and the store, and did not raise the old peak. The order
        // of all four accesses must be the same for all threads, hence `SeqCst`.
        self.peak.store(self.counted.load(SeqCst), SeqCst);
        self.peak.fetch_max(self.counted.load(SeqCst), SeqCst);
    }

    /// Raises the peak to at least this, after it was reset for a shorter measurement.
    pub(crate) fn raise_peak(&self, bytes: usize) {
        self.peak.fetch_max(bytes, SeqCst);
    }

    fn accounts(&self) -> MutexGuard<'_, Vec<Arc<Account>>> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;

    #[test]
    fn one_thread_is_counted_exactly_with_and_without_an_account() {
        let counter = Counter::new();
        let account = counter.open();
        let (mut live, mut current, mut peak) = (Vec::new(), 0, 0);
        let mut seed = 1usize;
        for _ in 0..if cfg!(miri) { 200 } else { 10_000 } {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let account = (seed >> 40 & 3 != 0).then_some(&*account);
            if seed >> 50 & 1 == 0 {
                let bytes = 1 + (seed >> 33) % 30_000;
                counter.add(account, bytes);
                live.push(bytes);
                current += bytes;
            } else if let Some(bytes) = live.pop() {
                counter.sub(account, bytes);
                current -= bytes;
            }
            // Without an account, what is owed cannot be offset: the peak may then be too high by the credit.
            peak = current.max(peak);
            assert_eq!(counter.current(), current);
            assert!((peak..=peak + CREDIT).contains(&counter.peak()));
        }
        counter.close(&account);
        assert_eq!((counter.current(), counter.counted.load(SeqCst)), (current, current));
    }

    #[test]
    fn what_is_owed_does_not_raise_the_peak() {
        let counter = Counter::new();
        let account = counter.open();
        let account = Some(&*account);
        for _ in 0..10 {
            counter.add(account, 1000);
            counter.add(account, 500);
            assert_eq!((counter.current(), counter.peak()), (1500, 1500));
            counter.sub(account, 1000);
            counter.sub(account, 500);
            counter.add(account, 1400);
            assert_eq!((counter.current(), counter.peak()), (1400, 1500));
            counter.sub(account, 1400);
            assert_eq!((counter.current(), counter.peak()), (0, 1500));
        }
        counter.add(account, CREDIT + 1600);
        assert_eq!(counter.peak(), CREDIT + 1600);
        counter.sub(account, CREDIT + 1600);
        assert_eq!(counter.counted.load(SeqCst), 0, "nobody owes more than the credit");
    }

    #[test]
    fn a_reset_peak_starts_from_what_is_in_use() {
        let counter = Counter::new();
        counter.add(None, 100);
        counter.add(None, 50);
        counter.sub(None, 100);
        assert_eq!((counter.current(), counter.peak()), (50, 150));
        counter.reset_peak();
        assert_eq!((counter.current(), counter.peak()), (50, 50));
        counter.add(None, 10);
        assert_eq!(counter.peak(), 60);
    }

    #[test]
    fn threads_that_free_for_each_other_are_counted_exactly() {
        let counter = Counter::new();
        std::thread::scope(|scope| {
            for taker in [true, false] {
                let counter = &counter;
                scope.spawn(move || {
                    let account = counter.open();
                    counter.add(None, if taker { 0 } else { 64_000 });
                    for _ in 0..1000 {
                        if taker {
                            counter.add(Some(&account), 64);
                        } else {
                            counter.sub(Some(&account), 64);
                        }
                    }
                    counter.close(&account);
                });
            }
        });
        assert_eq!((counter.current(), counter.accounts().len()), (64_000, 0));
        assert!(counter.peak() >= 64_000);
    }
}
