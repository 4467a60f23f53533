//! Files on modelled devices, one device for each time that a read takes.

use std::fs::File;
use std::path::Path;
use std::sync::Once;

use super::direct::file_in;
use softring_engine::model::{self, parse};
use softring_host::fd;

/// Makes a file of `blocks` blocks whose reads take `time`: one of `times`, which a test program
/// names alike each time. `program` names its folder.
pub fn file(program: &str, times: &[&str], time: &str, blocks: u8) -> Option<File> {
    static ONCE: Once = Once::new();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(program);
    ONCE.call_once(|| {
        let made = times.iter().map(|time| {
            let folder = folder.join(time);
            std::fs::create_dir_all(&folder).unwrap();
            parse::model(format!("{}=latency:{time}", folder.display()).as_ref()).unwrap()
        });
        model::set(made.collect());
        fd::closes_are_reported();
    });
    file_in(&folder.join(time), blocks)
}
