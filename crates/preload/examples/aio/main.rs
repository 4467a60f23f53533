//! A program on kernel aio, for the tests: `aio CASE` exits with 0 if the case holds. The cases of
//! `--plain` and `--kernels` also hold on the kernel without the library. With `AIO_DENIED` the
//! process denies itself the six calls.
#![allow(unsafe_code)]

mod contended;
mod deny;
mod plain;
mod polled;
mod polls;
mod refuse;
mod sys;
mod waits;

use std::process::ExitCode;

type Case = (&'static str, fn());

fn main() -> ExitCode {
    if std::env::var_os("AIO_DENIED").is_some() {
        deny::aio();
    }
    let name = std::env::args().nth(1).unwrap_or_default();
    let plain = [plain::CASES, waits::CASES, refuse::CASES, polls::CASES].concat();
    let kernels = [waits::KERNELS, polled::KERNELS].concat();
    let all: Vec<Case> = [&*plain, &*kernels, polled::CASES, contended::CASES].concat();
    let list = |cases: &[Case]| cases.iter().for_each(|c| println!("{}", c.0));
    match name.as_str() {
        "--plain" => list(&plain),
        "--kernels" => list(waits::KERNELS),
        "--unreported" => list(polled::KERNELS),
        "--polled" => list(polled::CASES),
        name => match all.iter().find(|c| c.0 == name) {
            Some(case) => (case.1)(),
            None => return ExitCode::FAILURE,
        },
    }
    ExitCode::SUCCESS
}
