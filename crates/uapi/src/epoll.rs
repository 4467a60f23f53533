//! `linux/eventpoll.h`.

/// One event, as epoll_wait(2) gives it.
#[repr(C, packed)]
#[derive(Clone, Copy, Debug, Default)]
pub struct epoll_event {
    pub events: u32,
    pub data: u64,
}
