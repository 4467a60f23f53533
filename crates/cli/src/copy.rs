//! `softring copy`: copies the command and its library into a folder, laid out as they are
//! installed. An image that has nothing else fills a volume this way, from which other containers
//! preload the library.

use crate::cli::CopyArgs;
use crate::run::lib_path;
use crate::{fail, files, out};
use std::path::Path;
use std::{fs, io};

/// Runs `softring copy DIR`.
pub fn command(args: &CopyArgs) -> anyhow::Result<()> {
    let library = lib_path::bytes()?;
    let own = files::own_exe()?;
    install(&args.dir.join("bin/softring"), |to| fs::copy(&own, to).map(|_| ()))?;
    let to = args.dir.join("lib").join(lib_path::NAME);
    install(&to, |to| fs::write(to, &library))?;
    out::line(&to.display().to_string())
}

/// Puts a file at `to` in one step, even while the old file is run or mapped. `write` writes it to
/// a path that it is given.
fn install(to: &Path, write: impl FnOnce(&Path) -> io::Result<()>) -> anyhow::Result<()> {
    let cannot = |e: io::Error| {
        let hint = "name a folder that this user may write to, on a mount without noexec";
        fail::work_hint(format!("cannot write {}: {e}", to.display()), hint)
    };
    let part = to.with_extension("part");
    fs::create_dir_all(to.parent().unwrap_or(Path::new("/"))).map_err(cannot)?;
    write(&part).map_err(cannot)?;
    fs::rename(&part, to).map_err(cannot)
}
