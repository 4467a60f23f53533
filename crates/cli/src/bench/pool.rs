//! Client with a pool of threads that call pread and pwrite, as programs without io_uring do: one
//! queue, one list of completions.

use super::buf::Slots;
use super::client::{Client, Done, Io};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

#[derive(Default)]
struct Queue {
    ios: VecDeque<Io>,
    idle: u32,
    over: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    work: Condvar,
    done: Mutex<Vec<Done>>,
    ready: Condvar,
    fd: OwnedFd,
    slots: Slots,
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    // panic = abort: a poisoned lock cannot be met.
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn serve(&self) {
        loop {
            let mut q = lock(&self.queue);
            while q.ios.is_empty() {
                if q.over {
                    return;
                }
                q.idle += 1;
                q = self.work.wait(q).unwrap_or_else(PoisonError::into_inner);
                q.idle -= 1;
            }
            let Some(io) = q.ios.pop_front() else { continue };
            drop(q);
            let res = self.slots.transfer(self.fd.as_fd(), io.slot, io.len, io.offset, io.write);
            let mut done = lock(&self.done);
            done.push(Done { slot: io.slot, res });
            let first = done.len() == 1;
            drop(done);
            if first {
                self.ready.notify_one();
            }
        }
    }
}

pub struct Pool {
    shared: Arc<Shared>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Pool {
    pub fn new(threads: u32, fd: BorrowedFd<'_>, slots: Slots) -> io::Result<Pool> {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            work: Condvar::new(),
            done: Mutex::default(),
            ready: Condvar::new(),
            fd: fd.try_clone_to_owned()?,
            slots,
        });
        let start = |_| {
            let shared = shared.clone();
            thread::Builder::new().name("pool".into()).spawn(move || shared.serve())
        };
        let threads = (0..threads).map(start).collect::<io::Result<_>>()?;
        Ok(Pool { shared, threads })
    }
}

impl Client for Pool {
    fn submit(&mut self, batch: &[Io]) -> io::Result<()> {
        let mut q = lock(&self.shared.queue);
        q.ios.extend(batch);
        let wake = q.idle.min(batch.len() as u32);
        drop(q);
        for _ in 0..wake {
            self.shared.work.notify_one();
        }
        Ok(())
    }

    fn wait(&mut self, want: u32, done: &mut Vec<Done>) -> io::Result<()> {
        let mut got = 0;
        while got < want {
            let mut list = lock(&self.shared.done);
            while list.is_empty() {
                list = self.shared.ready.wait(list).unwrap_or_else(PoisonError::into_inner);
            }
            got += list.len() as u32;
            done.append(&mut list);
        }
        Ok(())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        lock(&self.shared.queue).over = true;
        self.shared.work.notify_all();
        for t in self.threads.drain(..) {
            // A thread that panicked has aborted the process: there is no error to see.
            let _ = t.join();
        }
    }
}
