use super::*;
use crate::error::OutOfMemory;
use crate::memory;
use std::sync::Barrier;
use std::sync::mpsc;
use std::thread;

fn new(bytes: usize) -> Storage {
    Storage::new("test", Device::Cpu, bytes).expect("memory for a test")
}

fn stats() -> memory::Stats {
    memory::stats(Device::Cpu).expect("the CPU is always there")
}

/// Fills a storage with a byte, and checks that it still holds it.
fn fill(storage: &mut Storage, byte: u8) {
    let bytes = storage.bytes();
    let start = storage.get_mut().expect("sole owner");
    // SAFETY: `get_mut`: valid for writes of `bytes` bytes.
    unsafe { start.write_bytes(byte, bytes) }
}

fn read(storage: &Storage) -> &[u8] {
    // SAFETY: valid for reads of `bytes` bytes, all of them written by the tests that call this.
    unsafe { std::slice::from_raw_parts(storage.as_ptr(), storage.bytes()) }
}

/// Runs a test of the process-wide statistics or limit in a separate process, since other tests run concurrently.
fn alone(name: &str, test: impl FnOnce()) {
    const ALONE: &str = "COTANGENT_TEST_ALONE";
    if cfg!(miri) || std::env::var_os(ALONE).is_some_and(|value| value == name) {
        return test();
    }
    let path = format!("{}::{name}", module_path!().split_once("::").map_or("", |(_, path)| path));
    let output = std::process::Command::new(std::env::current_exe().expect("a path"))
        .args(["--exact", &path, "--test-threads=1"])
        .env(ALONE, name)
        .output()
        .expect("the test binary runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[cotangent_macros::unit_test]
fn storage_can_cross_threads() {
    fn assert_send_sync<T: Send + Sync>() {}
    assert_send_sync::<Storage>();
}

#[cotangent_macros::unit_test]
fn sizes_alignment_and_contents() {
    // Miri is slow: it skips the sizes beyond the caches of threads.
    let large = if cfg!(miri) { &[][..] } else { &[65_536, 65_537, (1 << 20) + 1, 5 << 20] };
    for &bytes in [0, 1, 4, 63, 64, 65, 4096].iter().chain(large) {
        let mut storage = new(bytes);
        assert_eq!((storage.bytes(), storage.device()), (bytes, Device::Cpu));
        assert!(storage.buffer.capacity >= bytes);
        assert_eq!(storage.as_ptr().addr() % 64, 0);
        fill(&mut storage, 7);
        assert!(read(&storage).iter().all(|&byte| byte == 7));
        drop(storage);
        // Now the recycled memory holds sevens.
        let zeroed = Storage::zeroed("test", Device::Cpu, bytes).expect("memory for a test");
        assert!(read(&zeroed).iter().all(|&byte| byte == 0));
    }
}

#[cotangent_macros::unit_test]
fn only_the_sole_owner_may_write() {
    for bytes in [0, 4, 1 << 20] {
        let mut a = new(bytes);
        assert!(a.is_unique() && a.get_mut().is_some());
        let mut b = a.clone();
        assert!(a.ptr_eq(&b) && a.as_ptr() == b.as_ptr() && b.bytes() == bytes);
        assert!(!a.is_unique() && a.get_mut().is_none() && b.get_mut().is_none());
        drop(a);
        assert!(b.is_unique() && b.get_mut().is_some());
        assert!(!b.ptr_eq(&new(bytes)));
    }
}

#[cotangent_macros::unit_test]
fn foreign_memory_is_read_only_and_keeps_its_owner() {
    let owner = Arc::new(vec![1u8, 2, 3]);
    // SAFETY: the vector lives as long as its `Arc` and nobody changes it.
    let mut storage = unsafe { Storage::foreign(owner.clone(), owner.as_ptr(), owner.len(), Device::Cpu) };
    assert_eq!(read(&storage), [1, 2, 3]);
    assert!(!storage.is_unique() && storage.get_mut().is_none());
    let clone = storage.clone();
    drop(storage);
    assert_eq!(Arc::strong_count(&owner), 2);
    assert_eq!(read(&clone), [1, 2, 3]);
    drop(clone);
    assert_eq!(Arc::strong_count(&owner), 1);
}

#[cotangent_macros::unit_test]
fn absurd_requests_are_errors() {
    for bytes in [usize::MAX, usize::MAX / 2, usize::MAX / 4] {
        match Storage::new("zeros", Device::Cpu, bytes) {
            Err(error) => {
                assert_eq!((error.op(), error.memory().map(|figures| figures.requested)), ("zeros", Some(bytes)));
            }
            Ok(storage) => panic!("{storage:?}"),
        }
    }
}

#[cotangent_macros::unit_test]
fn a_small_buffer_is_used_again_at_once() {
    let first = new(4);
    let (buffer, start) = (Arc::as_ptr(&first.buffer), first.as_ptr());
    let kept = magazine::kept(0);
    drop(first);
    assert_eq!(magazine::kept(0), kept + 1, "it waits in the magazine, not in the pool");
    let second = new(60);
    assert_eq!(magazine::kept(0), kept);
    assert_eq!((Arc::as_ptr(&second.buffer), second.as_ptr(), second.bytes()), (buffer, start, 60));
    let other = new(100);
    assert_ne!(other.as_ptr(), start);
}

#[cotangent_macros::unit_test]
fn memory_is_flat_and_statistics_are_exact() {
    alone("memory_is_flat_and_statistics_are_exact", || {
        let step = || {
            let storages: Vec<_> = [0, 4, 100, 70_000, 3 << 20, 20 << 20].into_iter().map(new).collect();
            // The rounded sizes: to a class, to 64 bytes, and here to a whole segment's 20 MiB.
            64 + 128 + 70_016 + (3 << 20) + (20 << 20) - storages[0].bytes()
        };
        let before = stats();
        let expected = step();
        let warm = stats();
        assert_eq!(warm.current(), before.current());
        assert_eq!(warm.peak(), before.current() + expected);
        assert_eq!(warm.cached() + warm.current(), warm.held());
        for _ in 0..100 {
            step();
        }
        assert_eq!(stats(), warm);
        memory::reset_peak(Device::Cpu).expect("the CPU");
        assert_eq!(stats().peak(), stats().current());
        // A freed small buffer is not counted in addition to a later large one.
        drop(new(4));
        let large = new(1 << 20);
        assert_eq!((stats().peak(), stats().current()), (large.bytes(), large.bytes()));
    });
}

#[cotangent_macros::unit_test]
fn emptying_the_cache_gives_everything_back() {
    alone("emptying_the_cache_gives_everything_back", || {
        let held = stats().held();
        let live = new(4);
        drop((new(4), new(1000), new(1 << 20), new(40 << 20)));
        // Another thread's magazine follows at its next allocation, or its end.
        let (to_thread, inbox) = mpsc::channel::<()>();
        let (to_main, outbox) = mpsc::channel();
        let other = thread::spawn(move || {
            drop((new(4), new(100)));
            to_main.send(()).expect("main waits");
            inbox.recv().expect("main sends");
            drop(new(4));
            to_main.send(()).expect("main waits");
            inbox.recv().expect("main sends");
        });
        outbox.recv().expect("the thread sends");
        memory::empty_cache(Device::Cpu).expect("the CPU");
        assert_eq!(stats().current(), 64);
        assert_eq!(stats().held(), held + (2 << 20), "what is in use, or in the other thread's magazine");
        drop(live);
        memory::empty_cache(Device::Cpu).expect("the CPU");
        assert_eq!(stats().held(), held + (2 << 20), "the other thread keeps two blocks");
        assert_eq!(CPU.pool().used(), 64 + 128);
        to_thread.send(()).expect("the thread waits");
        outbox.recv().expect("the thread sends");
        assert_eq!(CPU.pool().used(), 64, "its old ones went back, its new one is kept");
        to_thread.send(()).expect("the thread waits");
        other.join().expect("the thread ends well");
        assert_eq!(CPU.pool().used(), 0);
        memory::empty_cache(Device::Cpu).expect("the CPU");
        assert_eq!((stats().held(), stats().current()), (held, 0));
    });
}

#[cotangent_macros::unit_test]
fn at_the_limit_the_caches_are_flushed_and_then_it_is_an_error() {
    alone("at_the_limit_the_caches_are_flushed_and_then_it_is_an_error", || {
        drop(new(4));
        memory::set_limit(Device::Cpu, Some(8 << 20)).expect("the CPU");
        drop(new(1000));
        // The small segment is held by this thread's magazine only: without emptying that one, 8 MiB cannot be had.
        let whole = new(8 << 20);
        match Storage::new("matmul", Device::Cpu, 4) {
            Err(error) => {
                let figures = OutOfMemory { requested: 4, held: 8 << 20, cached: 0, free: Some(0) };
                assert_eq!((error.op(), error.memory()), ("matmul", Some(figures)));
            }
            Ok(storage) => panic!("{storage:?}"),
        }
        drop(whole);
        drop(new(4));
        memory::set_limit(Device::Cpu, None).expect("the CPU");
        drop(new(16 << 20));
    });
}

#[cotangent_macros::unit_test]
fn many_threads_allocate_free_and_pass_storages_on() {
    alone("many_threads_allocate_free_and_pass_storages_on", || {
        let before = stats().current();
        let threads: usize = if cfg!(miri) { 3 } else { 8 };
        let rounds: usize = if cfg!(miri) { 30 } else { 5000 };
        let sizes = if cfg!(miri) { [4, 8, 60, 100, 200] } else { [4, 100, 5000, 70_000, 200_000] };
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..threads).map(|_| mpsc::channel::<Storage>()).unzip();
        let barrier = Barrier::new(threads);
        thread::scope(|scope| {
            let work = |(id, inbox): (usize, mpsc::Receiver<Storage>)| {
                let (next, barrier) = (senders[(id + 1) % threads].clone(), &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    for round in 0..rounds {
                        let bytes = sizes[(round + id) % 5];
                        let mut storage = new(bytes);
                        fill(&mut storage, (bytes % 251) as u8);
                        // The clone here and the one sent away are dropped at about the same time.
                        let clone = storage.clone();
                        next.send(storage).expect("all inboxes are open");
                        for storage in inbox.try_iter() {
                            let byte = (storage.bytes() % 251) as u8;
                            assert!(read(&storage).iter().all(|&b| b == byte), "written by someone else");
                        }
                        drop(clone);
                    }
                    inbox
                })
            };
            // Only an explicit join waits for the magazines, which go when a thread has ended. The inboxes stay open
            // until then; the handles still in them are the last of their buffers.
            let running: Vec<_> = receivers.into_iter().enumerate().map(work).collect();
            let ended = running.into_iter().map(|thread| thread.join().expect("the thread ends well"));
            drop(ended.collect::<Vec<_>>());
        });
        magazine::empty_all();
        assert_eq!((stats().current(), CPU.pool().used()), (before, 0));
    });
}

#[cotangent_macros::unit_test]
fn a_storage_that_outlives_its_threads_magazine_is_freed() {
    thread_local! {
        static LATE: std::cell::RefCell<Option<Storage>> = const { std::cell::RefCell::new(None) };
    }
    alone("a_storage_that_outlives_its_threads_magazine_is_freed", || {
        // Destructors of thread-locals run in some order: with one before and one after, both cases occur.
        for late_first in [true, false] {
            let body = move || {
                if !late_first {
                    drop(new(4));
                }
                LATE.with(|late| late.replace(None));
                LATE.with(|late| late.replace(Some(new(4))));
                drop(new(4));
            };
            thread::spawn(body).join().expect("the thread ends well");
            assert_eq!((stats().current(), CPU.pool().used()), (0, 0));
        }
    });
}
