//! Copies a file on tokio-uring.

use std::io::{Error, Result};
use tokio_uring::fs::File;

const BLOCK: usize = 65536;

fn main() -> Result<()> {
    if let Err(e) = softring::install() {
        eprintln!("{e}");
    }
    let mut paths = std::env::args_os().skip(1);
    let (Some(from), Some(to)) = (paths.next(), paths.next()) else {
        return Err(Error::other("usage: copy-tokio FROM TO"));
    };
    tokio_uring::start(async move {
        let (from, to) = (File::open(from).await?, File::create(to).await?);
        let (mut block, mut at) = (vec![0u8; BLOCK], 0);
        loop {
            let (read, filled) = from.read_at(block, at).await;
            let n = read?;
            if n == 0 {
                from.close().await?;
                return to.close().await;
            }
            block = filled;
            block.truncate(n);
            let (written, rest) = to.write_all_at(block, at).await;
            written?;
            block = rest;
            block.resize(BLOCK, 0);
            at += n as u64;
        }
    })
}
