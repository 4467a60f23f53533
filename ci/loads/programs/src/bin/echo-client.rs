//! The other end of the echo servers: `echo-client PORT CONNECTIONS SECONDS`. Each connection sends
//! 64 bytes and waits for them. Prints round trips a second.

use loads::MESSAGE;
use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn talk(mut stream: TcpStream, until: Instant, trips: Rc<Cell<u64>>) {
    let mut buf = [0u8; MESSAGE];
    let mut number = 0u64;
    while Instant::now() < until {
        number += 1;
        let message = [number.to_ne_bytes(); MESSAGE / 8].concat();
        stream.write_all(&message).await.expect("a send");
        stream.read_exact(&mut buf).await.expect("an echo");
        assert_eq!(buf[..], message[..]);
        trips.set(trips.get() + 1);
    }
}

fn main() {
    let port = loads::number(1, "port") as u16;
    let connections = loads::number(2, "connections");
    let seconds = Duration::from_millis(loads::number(3, "milliseconds") as u64);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    let local = tokio::task::LocalSet::new();
    let trips = Rc::new(Cell::new(0));
    let took = local.block_on(&runtime.expect("a runtime"), async {
        let mut streams = Vec::new();
        for _ in 0..connections {
            let stream = TcpStream::connect(("127.0.0.1", port)).await.expect("a connection");
            stream.set_nodelay(true).expect("TCP_NODELAY");
            streams.push(stream);
        }
        let began = Instant::now();
        let all = streams.into_iter().map(|stream| {
            tokio::task::spawn_local(talk(stream, began + seconds, trips.clone()))
        });
        for one in all.collect::<Vec<_>>() {
            one.await.expect("a connection's task");
        }
        began.elapsed()
    });
    println!("{}", trips.get() as f64 / took.as_secs_f64());
}
