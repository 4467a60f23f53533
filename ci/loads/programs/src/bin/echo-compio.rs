//! An echo server on compio's rings, or with `epoll` on its other driver.

use compio::BufResult;
use compio::driver::{DriverType, ProactorBuilder};
use compio::io::{AsyncRead, AsyncWriteExt};
use compio::net::{TcpListener, TcpStream};
use loads::BUFFER;

async fn echo(mut stream: TcpStream) {
    let mut buf = Vec::with_capacity(BUFFER);
    loop {
        let BufResult(read, back) = stream.read(buf).await;
        let Ok(1..) = read else { return };
        let BufResult(written, back) = stream.write_all(back).await;
        if written.is_err() {
            return;
        }
        buf = back;
    }
}

async fn serve() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    loads::listens(listener.local_addr().expect("an address").port());
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        compio::runtime::spawn(echo(stream)).detach();
    }
}

fn main() {
    let kind = match loads::word(1).as_str() {
        "epoll" => DriverType::Poll,
        _ => DriverType::IoUring,
    };
    let mut driver = ProactorBuilder::new();
    driver.driver_type(kind);
    let runtime = compio::runtime::RuntimeBuilder::new().with_proactor(driver).build();
    runtime.expect("a runtime").block_on(serve());
}
