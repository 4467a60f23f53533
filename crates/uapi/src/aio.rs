//! Kernel aio (`linux/aio_abi.h`) and the layout of its user-mapped completion ring (`fs/aio.c`).

/// One aio request.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct iocb {
    pub aio_data: u64,
    pub aio_key: u32,
    pub aio_rw_flags: i32,
    pub aio_lio_opcode: u16,
    pub aio_reqprio: i16,
    pub aio_fildes: u32,
    pub aio_buf: u64,
    pub aio_nbytes: u64,
    pub aio_offset: i64,
    pub aio_reserved2: u64,
    pub aio_flags: u32,
    pub aio_resfd: u32,
}

impl iocb {
    /// Makes the request signal an eventfd when done.
    #[must_use]
    pub fn with_resfd(mut self, eventfd: i32) -> iocb {
        self.aio_flags |= IOCB_FLAG_RESFD;
        self.aio_resfd = eventfd.cast_unsigned();
        self
    }
}

/// One aio completion.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct io_event {
    pub data: u64,
    pub obj: u64,
    pub res: i64,
    pub res2: i64,
}

/// Head of the completion ring that `io_setup` maps into the program.
#[repr(C)]
#[derive(Debug)]
pub struct aio_ring {
    pub id: u32,
    pub nr: u32,
    pub head: u32,
    pub tail: u32,
    pub magic: u32,
    pub compat_features: u32,
    pub incompat_features: u32,
    pub header_length: u32,
}

pub const AIO_RING_MAGIC: u32 = 0xa10a_10a1;
pub const IOCB_CMD_PREAD: u16 = 0;
pub const IOCB_CMD_PWRITE: u16 = 1;
pub const IOCB_CMD_FSYNC: u16 = 2;
pub const IOCB_CMD_FDSYNC: u16 = 3;
pub const IOCB_CMD_POLL: u16 = 5;
pub const IOCB_CMD_PREADV: u16 = 7;
pub const IOCB_CMD_PWRITEV: u16 = 8;
pub const IOCB_FLAG_RESFD: u32 = 1 << 0;
pub const IOCB_FLAG_IOPRIO: u32 = 1 << 1;
/// Bit that the kernel's header does not have and the kernel's aio ignores: that of "Support for
/// polled aio" (2018).
pub const IOCB_FLAG_HIPRI: u32 = 1 << 2;
