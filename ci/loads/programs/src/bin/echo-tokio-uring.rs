//! An echo server on tokio-uring, or with `epoll` on tokio's own driver.

use loads::BUFFER;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

async fn on_ring(stream: tokio_uring::net::TcpStream) {
    let mut buf = Vec::with_capacity(BUFFER);
    loop {
        let (read, back) = stream.read(buf).await;
        let Ok(1..) = read else { return };
        let (written, back) = stream.write_all(back).await;
        if written.is_err() {
            return;
        }
        buf = back;
        buf.clear();
    }
}

async fn on_epoll(mut stream: tokio::net::TcpStream) {
    let mut buf = [0u8; BUFFER];
    while let Ok(n @ 1..) = stream.read(&mut buf).await {
        if stream.write_all(&buf[..n]).await.is_err() {
            return;
        }
    }
}

fn main() {
    let any = "127.0.0.1:0".parse().expect("an address");
    if loads::word(1) == "epoll" {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        return runtime.expect("a runtime").block_on(async {
            let listener = tokio::net::TcpListener::bind::<std::net::SocketAddr>(any).await;
            let listener = listener.expect("a listener");
            loads::listens(listener.local_addr().expect("an address").port());
            loop {
                let (stream, _) = listener.accept().await.expect("a connection");
                stream.set_nodelay(true).expect("TCP_NODELAY");
                tokio::spawn(on_epoll(stream));
            }
        });
    }
    tokio_uring::start(async {
        let listener = tokio_uring::net::TcpListener::bind(any).expect("a listener");
        loads::listens(listener.local_addr().expect("an address").port());
        loop {
            let (stream, _) = listener.accept().await.expect("a connection");
            stream.set_nodelay(true).expect("TCP_NODELAY");
            tokio_uring::spawn(on_ring(stream));
        }
    });
}
