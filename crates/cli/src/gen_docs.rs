//! The manual pages and the shell completions, from the command line's definitions.

use crate::cli::{Cli, GenArgs, GenWhat, VERSION};
use crate::man;
use anyhow::Context;
use clap::{CommandFactory, ValueEnum};
use std::fs;

pub fn command(args: &GenArgs) -> anyhow::Result<()> {
    let dir = &args.dir;
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let cli = Cli::command();
    match args.what {
        GenWhat::Man => man::write(cli, dir),
        GenWhat::Completions => {
            let mut shown = shown(&cli);
            let mut all = clap_complete::Shell::value_variants().iter();
            all.try_for_each(|shell| {
                clap_complete::generate_to(*shell, &mut shown, "softring", dir).map(drop)
            })
        }
    }
    .with_context(|| format!("cannot write into {}", dir.display()))
}

/// Returns the command without what is hidden: nobody types that, so it is not worth completing.
fn shown(cli: &clap::Command) -> clap::Command {
    let top = clap::Command::new("softring").version(VERSION);
    let about = cli.get_about().cloned().unwrap_or_default();
    top.about(about).subcommands(cli.get_subcommands().filter(|c| !c.is_hide_set()).cloned())
}
