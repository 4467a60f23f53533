//! `softring copy`: copies the command and its library into a folder, laid out as they are
//! installed. An image that has nothing else fills a volume this way, from which other containers
//! preload the library.

use crate::cli::CopyArgs;
use crate::run::lib_path;
use crate::{fail, files, out};
use std::fs;
use std::path::Path;

/// Runs `softring copy DIR`.
pub fn command(args: &CopyArgs) -> anyhow::Result<()> {
    let library = lib_path::find()?;
    let to = args.dir.join("lib").join(lib_path::NAME);
    let own = files::own_exe()?;
    install(&own, &args.dir.join("bin/softring"))?;
    install(&library, &to)?;
    out::line(&to.display().to_string())
}

/// Puts a copy at `to` in one step, even while the old file is run or mapped.
fn install(from: &Path, to: &Path) -> anyhow::Result<()> {
    let cannot = |e: std::io::Error| {
        let hint = "name a folder that this user may write to, on a mount without noexec";
        fail::work_hint(format!("cannot write {}: {e}", to.display()), hint)
    };
    let part = to.with_extension("part");
    fs::create_dir_all(to.parent().unwrap_or(Path::new("/"))).map_err(cannot)?;
    fs::copy(from, &part).map_err(cannot)?;
    fs::rename(&part, to).map_err(cannot)
}
