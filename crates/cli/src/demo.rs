//! `softring demo`.

use crate::cli::DemoArgs;

pub fn command(_: &DemoArgs) -> anyhow::Result<()> {
    Err(crate::fail::usage("this build has no demo", "use softring run and softring doctor"))
}
