//! `softring bench`.

use crate::cli::BenchArgs;

pub mod worker {
    pub fn command() -> anyhow::Result<()> {
        Err(crate::fail::usage("this build measures nothing", "use softring run"))
    }
}

pub fn command(_: &BenchArgs) -> anyhow::Result<()> {
    worker::command()
}
