//! `softring demo`: shows the main job. A program that knows only io_uring fails where io_uring is
//! denied, works there under softring with its data verified, and is measured against the
//! alternatives.

use crate::bench::file::{self, Need, Target};
use crate::bench::job::Job;
use crate::bench::runner::{self, Runner};
use crate::bench::summary::{self, Summary, count, time};
use crate::bench::{Skipped, available, rounds};
use crate::cli::{DemoArgs, Driver, Op, Rw, name_of};
use crate::{fail, out};
use comfy_table::{Cell, CellAlignment};

const SIZE: u64 = 64 << 20;
const BS: u32 = 4096;
/// Seeds of the data that the file holds at first, and of the data that the program writes.
const OLD: u64 = 1;
const NEW: u64 = 2;
const ROUNDS: u32 = 2;
const ENGINES: [Driver; 4] = [Driver::Kernel, Driver::Softring, Driver::Pool, Driver::PosixAio];

/// Runs `softring demo`.
pub fn command(args: &DemoArgs) -> anyhow::Result<()> {
    let need = Need {
        size: SIZE,
        bs: u64::from(BS),
        writes: true,
        verify: true,
        direct: false,
        seed: OLD,
    };
    let target = file::temporary(args.dir.as_deref(), &need)?;
    let job = job(&target, args.seconds);
    denied(&job)?;
    verified(&job, &target)?;
    measured(&job, &target)
}

/// Makes the job of a sequential write of the whole file; the steps change what they need.
fn job(target: &Target, seconds: f64) -> Job {
    Job {
        driver: Driver::Kernel,
        op: Op::Rw,
        path: target.path.clone(),
        size: target.size,
        bs: BS,
        depth: 32,
        batch: 32,
        wait: 1,
        threads: 1,
        pool_threads: 16,
        seconds,
        warmup: 0.2,
        rw: Rw::Write,
        rwmix: 70,
        direct: false,
        setup_flags: 0,
        fixed_files: false,
        slat: false,
        verify: false,
        seed: NEW,
        once: true,
        connections: 0,
        multishot: false,
        count: 0,
        rate: 0,
        sq_idle: 0,
    }
}

fn denied(job: &Job) -> anyhow::Result<()> {
    out::line(
        "1. A program that knows only io_uring, where io_uring is denied as Docker denies it:",
    )?;
    match runner::run_denied(job) {
        Ok(_) => Err(fail::work("io_uring could not be denied: the program got a ring")),
        Err(e) if fail::is_work(&e) => out::line(&format!("     it fails: {e}")),
        Err(e) => Err(e),
    }
}

fn verified(job: &Job, target: &Target) -> anyhow::Result<()> {
    out::line("\n2. The same program, still denied, under `softring run`:")?;
    let denied = Runner { deny: true, options: &[] };
    let write = Job { driver: Driver::Softring, ..job.clone() };
    let report = denied.run(&write)?;
    if let Some(at) = target.mismatch(NEW)? {
        return Err(fail::work(format!("the data written through softring differ at byte {at}")));
    }
    let (blocks, mib) = (target.size / u64::from(BS), target.size >> 20);
    let ring = report.ring.unwrap_or_else(|| "not known".into());
    out::line(&format!(
        "     it wrote {mib} MiB; plain reads find every byte correct (ring: {ring})"
    ))?;
    let read = Job { rw: Rw::Read, verify: true, ..write };
    let report = denied.run(&read)?;
    if report.verified != blocks {
        let n = report.verified;
        return Err(fail::work(format!("{n} of {blocks} blocks were read through softring")));
    }
    out::line(&format!("     it read {mib} MiB: {} blocks verified", count(blocks as f64)))
}

fn measured(job: &Job, target: &Target) -> anyhow::Result<()> {
    out::line("\n3. Random reads of 4 KiB, 32 in flight from one thread, medians:")?;
    let (engines, skipped) = available(&ENGINES, Op::Rw)?;
    let job = Job { rw: Rw::Randread, once: false, ..job.clone() };
    let direct = target.can_direct();
    let loads = if direct { 2 } else { 1 };
    let bar = out::progress(loads * u64::from(ROUNDS) * engines.len() as u64);
    let measure = |direct| {
        let job = Job { direct, ..job.clone() };
        rounds(&Runner { deny: false, options: &[] }, &job, &engines, ROUNDS, &bar)
            .map(summary::summarize)
    };
    target.warm()?;
    let mut table = out::table(&["file", "through", "IOPS", "p50", "p99", "CPU %", "IOPS ratio"]);
    add_rows(&mut table, "cached", &measure(false)?);
    if direct {
        add_rows(&mut table, "O_DIRECT", &measure(true)?);
    }
    bar.finish_and_clear();
    out::line(&table.to_string())?;
    if !direct {
        out::line(
            "O_DIRECT: this file system does not support it; name a folder on a disk with --dir.",
        )?;
    }
    for Skipped { engine, why } in skipped {
        out::line(&format!("{}: {why}.", label(engine)))?;
    }
    if cfg!(debug_assertions) {
        out::line("This is a debug build, so the figures mean little.")?;
    }
    Ok(())
}

fn label(engine: Driver) -> String {
    match engine {
        Driver::Kernel => "the kernel's io_uring".into(),
        Driver::Softring => "softring".into(),
        Driver::Pool => "16 threads, pread".into(),
        Driver::PosixAio => "POSIX aio".into(),
        Driver::Libaio | Driver::Epoll | Driver::Calls => name_of(engine),
    }
}

fn add_rows(table: &mut comfy_table::Table, load: &str, rows: &[Summary]) {
    let number = |s: String| Cell::new(s).set_alignment(CellAlignment::Right);
    for (i, r) in rows.iter().enumerate() {
        table.add_row([
            Cell::new(if i == 0 { load } else { "" }),
            Cell::new(label(r.engine)),
            number(count(r.iops)),
            number(time(r.p50_ns)),
            number(time(r.p99_ns)),
            number(format!("{:.0}", r.cpu_percent)),
            number(r.iops_ratio.map_or_else(String::new, |q| format!("{:.2}", q.median))),
        ]);
    }
}
