//! Compile-time proof that each struct has the kernel's layout: size, alignment and every offset,
//! and that no field was forgotten (the pattern in `check!` is exhaustive).

use super::{aio, *};
use core::mem::{align_of, offset_of, size_of};

macro_rules! check {
    ($t:path, $size:literal, $align:literal, { $($f:ident: $off:literal),* $(,)? }) => {
        const _: () = {
            assert!(size_of::<$t>() == $size);
            assert!(align_of::<$t>() == $align);
            $(assert!(offset_of!($t, $f) == $off);)*
            #[allow(dead_code)]
            const fn complete(x: &$t) {
                let $t { $($f: _),* } = x;
            }
        };
    };
}

check!(io_uring_sqe, 64, 8, {
    opcode: 0, flags: 1, ioprio: 2, fd: 4, off: 8, addr: 16, len: 24, op_flags: 28, user_data: 32,
    buf_index: 40, personality: 42, file_index: 44, addr3: 48, pad2: 56,
});
check!(nvme_passthru_cmd64, 80, 8, {
    opcode: 0, flags: 1, rsvd1: 2, nsid: 4, cdw2: 8, cdw3: 12, metadata: 16, addr: 24,
    metadata_len: 32, data_len: 36, cdw10: 40, timeout_ms: 64, rsvd2: 68, result: 72,
});
check!(procmap_query, 104, 8, {
    size: 0, flags: 8, addr: 16, vma_start: 24, vma_end: 32, vma_flags: 40, page_size: 48,
    offset: 56, inode: 64, dev_major: 72, dev_minor: 76, name_size: 80, build_id_size: 84,
    name_addr: 88, build_id_addr: 96,
});
check!(io_uring_cqe, 16, 8, { user_data: 0, res: 8, flags: 12 });
check!(io_sqring_offsets, 40, 8, {
    head: 0, tail: 4, ring_mask: 8, ring_entries: 12, flags: 16, dropped: 20, array: 24, resv1: 28,
    user_addr: 32,
});
check!(io_cqring_offsets, 40, 8, {
    head: 0, tail: 4, ring_mask: 8, ring_entries: 12, overflow: 16, cqes: 20, flags: 24, resv1: 28,
    user_addr: 32,
});
check!(io_uring_params, 120, 8, {
    sq_entries: 0, cq_entries: 4, flags: 8, sq_thread_cpu: 12, sq_thread_idle: 16, features: 20,
    wq_fd: 24, resv: 28, sq_off: 40, cq_off: 80,
});
check!(kernel_timespec, 16, 8, { tv_sec: 0, tv_nsec: 8 });
check!(io_uring_getevents_arg, 24, 8, { sigmask: 0, sigmask_sz: 8, min_wait_usec: 12, ts: 16 });
check!(io_uring_reg_wait, 64, 8, {
    ts: 0, min_wait_usec: 16, flags: 20, sigmask: 24, sigmask_sz: 32, pad: 36, pad2: 48,
});
check!(io_uring_files_update, 16, 8, { offset: 0, resv: 4, fds: 8 });
check!(io_uring_rsrc_register, 32, 8, { nr: 0, flags: 4, resv2: 8, data: 16, tags: 24 });
check!(io_uring_rsrc_update, 16, 8, { offset: 0, resv: 4, data: 8 });
check!(io_uring_rsrc_update2, 32, 8, { offset: 0, resv: 4, data: 8, tags: 16, nr: 24, resv2: 28 });
check!(io_uring_probe_op, 8, 4, { op: 0, resv: 1, flags: 2, resv2: 4 });
check!(io_uring_probe, 16, 4, { last_op: 0, ops_len: 1, resv: 2, resv2: 4 });
check!(io_uring_restriction, 16, 4, { opcode: 0, arg: 2, resv: 3, resv2: 4 });
check!(io_uring_task_restriction, 16, 4, { flags: 0, nr_res: 2, resv: 4 });
check!(io_uring_bpf, 72, 8, {
    cmd_type: 0, cmd_flags: 2, resv: 4, opcode: 8, flags: 12, filter_len: 16, pdu_size: 20,
    resv1: 21, filter_ptr: 24, resv2: 32,
});
check!(sock_filter, 8, 4, { code: 0, jt: 2, jf: 3, k: 4 });
check!(io_uring_sync_cancel_reg, 64, 8, {
    addr: 0, fd: 8, flags: 12, timeout: 16, opcode: 32, pad: 33, pad2: 40,
});
check!(io_uring_file_index_range, 16, 8, { off: 0, len: 4, resv: 8 });
check!(io_uring_clock_register, 16, 4, { clockid: 0, resv: 4 });
check!(io_uring_clone_buffers, 32, 4, {
    src_fd: 0, flags: 4, src_off: 8, dst_off: 12, nr: 16, pad: 20,
});
check!(io_uring_region_desc, 64, 8, {
    user_addr: 0, size: 8, flags: 16, id: 20, mmap_offset: 24, resv: 32,
});
check!(io_uring_mem_region_reg, 32, 8, { region_uptr: 0, flags: 8, resv: 16 });
check!(io_uring_query_hdr, 40, 8, {
    next_entry: 0, query_data: 8, query_op: 16, size: 20, result: 24, resv: 28,
});
check!(io_uring_query_opcode, 48, 8, {
    nr_request_opcodes: 0, nr_register_opcodes: 4, feature_flags: 8, ring_setup_flags: 16,
    enter_flags: 24, sqe_flags: 32, nr_query_opcodes: 40, pad: 44,
});
check!(aio::iocb, 64, 8, {
    aio_data: 0, aio_key: 8, aio_rw_flags: 12, aio_lio_opcode: 16, aio_reqprio: 18, aio_fildes: 20,
    aio_buf: 24, aio_nbytes: 32, aio_offset: 40, aio_reserved2: 48, aio_flags: 56, aio_resfd: 60,
});
check!(aio::io_event, 32, 8, { data: 0, obj: 8, res: 16, res2: 24 });
check!(aio::aio_ring, 32, 4, {
    id: 0, nr: 4, head: 8, tail: 12, magic: 16, compat_features: 20, incompat_features: 24,
    header_length: 28,
});
check!(io_uring_buf, 16, 8, { addr: 0, len: 8, bid: 12, resv: 14 });
check!(io_uring_buf_reg, 40, 8, {
    ring_addr: 0, ring_entries: 8, bgid: 12, flags: 14, min_left: 16, resv: 20,
});
check!(io_uring_napi, 16, 4, {
    busy_poll_to: 0, prefer_busy_poll: 4, opcode: 5, pad: 6, op_param: 8, resv: 12,
});
check!(io_uring_buf_status, 40, 4, { buf_group: 0, head: 4, resv: 8 });
