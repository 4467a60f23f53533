//! An echo server on monoio's rings, or with `epoll` on its other driver.

use loads::BUFFER;
use monoio::io::{AsyncReadRent, AsyncWriteRentExt};
use monoio::net::{TcpListener, TcpStream};

async fn echo(mut stream: TcpStream) {
    let mut buf = Vec::with_capacity(BUFFER);
    loop {
        let (read, back) = stream.read(buf).await;
        let Ok(1..) = read else { return };
        let (written, back) = stream.write_all(back).await;
        if written.is_err() {
            return;
        }
        buf = back;
    }
}

async fn serve() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    loads::listens(listener.local_addr().expect("an address").port());
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        stream.set_nodelay(true).expect("TCP_NODELAY");
        monoio::spawn(echo(stream));
    }
}

fn main() {
    if loads::word(1) == "epoll" {
        let runtime = monoio::RuntimeBuilder::<monoio::LegacyDriver>::new().build();
        return runtime.expect("a runtime").block_on(serve());
    }
    let runtime = monoio::RuntimeBuilder::<monoio::IoUringDriver>::new().build();
    runtime.expect("a runtime").block_on(serve());
}
