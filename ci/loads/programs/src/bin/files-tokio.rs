//! Files through tokio: `files-tokio THREADS TASKS FILES DIR`. Each task writes its files and reads
//! them back: open, write, close, open, statx, read, close. With `--cfg tokio_unstable` tokio uses
//! a ring where it gets one, else its pool of threads. Prints requests a second.

use std::path::PathBuf;
use std::time::Instant;

/// Requests for one file.
const REQUESTS: usize = 7;
const SIZE: usize = 4096;

async fn files(dir: PathBuf, count: usize) {
    let data = vec![7u8; SIZE];
    for i in 0..count {
        let path = dir.join(format!("{}", i % 16));
        tokio::fs::write(&path, &data).await.expect("write");
        assert_eq!(tokio::fs::read(&path).await.expect("read"), data);
    }
}

fn main() {
    let [threads, tasks, count] = ["threads", "tasks", "files"].map({
        let mut at = 0;
        move |what| {
            at += 1;
            loads::number(at, what)
        }
    });
    let dir = PathBuf::from(loads::word(4));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .expect("a runtime");
    let began = Instant::now();
    runtime.block_on(async {
        let each = (0..tasks).map(|task| {
            let dir = dir.join(format!("task{task}"));
            std::fs::create_dir_all(&dir).expect("a directory");
            tokio::spawn(files(dir, count / tasks))
        });
        for task in each.collect::<Vec<_>>() {
            task.await.expect("a task");
        }
    });
    println!("{}", (count * REQUESTS) as f64 / began.elapsed().as_secs_f64());
}
