package main

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"syscall"
	"unsafe"
)

const (
	sysSetup = 425
	sysEnter = 426

	offSQRing = 0
	offSQEs   = 0x10000000

	enterGetevents = 1

	opRead  = 22
	opWrite = 23
	opSend  = 26
	opRecv  = 27

	flagLink = 1 << 2
)

// A caller makes a system call that takes the number as an argument.
type caller func(nr, a, b, c, d, e, f uintptr) (uintptr, uintptr, syscall.Errno)

// sqe is struct io_uring_sqe.
type sqe struct {
	opcode, flags uint8
	ioprio        uint16
	fd            int32
	off, addr     uint64
	len, rwFlags  uint32
	userData      uint64
	rest          [3]uint64
}

// cqe is struct io_uring_cqe.
type cqe struct {
	userData uint64
	res      int32
	flags    uint32
}

// params is struct io_uring_params.
type params struct {
	sqEntries, cqEntries, flags, sqThreadCPU, sqThreadIdle, features, wqFd uint32

	_  [3]uint32
	sq struct {
		head, tail, ringMask, ringEntries, flags, dropped, array, _ uint32
		userAddr                                                    uint64
	}
	cq struct {
		head, tail, ringMask, ringEntries, overflow, cqes, flags, _ uint32
		userAddr                                                    uint64
	}
}

// ring is one goroutine's. raw: its calls are made by RawSyscall6, and never wait, as such a call
// keeps its processor from other goroutines.
type ring struct {
	fd             int
	call           caller
	raw            bool
	mem, sqes      []byte
	p              params
	sqTail, sqMask uint32
	queued         uint32
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func newRing(entries uint32, raw bool) *ring {
	r := &ring{raw: raw, call: syscall.Syscall6}
	if raw {
		r.call = syscall.RawSyscall6
	}
	fd, _, errno := r.call(sysSetup, uintptr(entries), uintptr(unsafe.Pointer(&r.p)), 0, 0, 0, 0)
	if errno != 0 {
		panic(fmt.Errorf("io_uring_setup: %w", errno))
	}
	r.fd = int(fd)
	const access, how = syscall.PROT_READ | syscall.PROT_WRITE, syscall.MAP_SHARED | syscall.MAP_POPULATE
	size := max(r.p.cq.cqes+r.p.cqEntries*uint32(unsafe.Sizeof(cqe{})), r.p.sq.array+r.p.sqEntries*4)
	var err error
	r.mem, err = syscall.Mmap(r.fd, offSQRing, int(size), access, how)
	check(err)
	r.sqes, err = syscall.Mmap(r.fd, offSQEs, int(r.p.sqEntries)*int(unsafe.Sizeof(sqe{})), access, how)
	check(err)
	r.sqMask = *r.word(r.p.sq.ringMask)
	return r
}

func (r *ring) close() {
	check(syscall.Munmap(r.sqes))
	check(syscall.Munmap(r.mem))
	check(syscall.Close(r.fd))
}

func (r *ring) word(at uint32) *uint32 { return (*uint32)(unsafe.Pointer(&r.mem[at])) }

func (r *ring) push(e sqe) {
	at := r.sqTail & r.sqMask
	*(*sqe)(unsafe.Pointer(&r.sqes[uintptr(at)*unsafe.Sizeof(e)])) = e
	*r.word(r.p.sq.array + at*4) = at
	r.sqTail++
	r.queued++
	atomic.StoreUint32(r.word(r.p.sq.tail), r.sqTail)
}

// run submits what was pushed, and returns its completions by their user data, 0 to n - 1.
func (r *ring) run() []int32 {
	n := r.queued
	results := make([]int32, n)
	for got, submit := uint32(0), n; got < n; {
		wait := n - got
		if r.raw {
			wait = 0
		}
		done, _, errno := r.call(sysEnter, uintptr(r.fd), uintptr(submit), uintptr(wait), enterGetevents, 0, 0)
		if errno == syscall.EINTR || errno == syscall.EAGAIN || errno == syscall.EBUSY {
			continue
		}
		if errno != 0 {
			panic(fmt.Errorf("io_uring_enter: %w", errno))
		}
		submit -= uint32(done)
		got += r.reap(results)
		if got < n {
			runtime.Gosched()
		}
	}
	r.queued = 0
	return results
}

func (r *ring) reap(results []int32) (n uint32) {
	head, mask := *r.word(r.p.cq.head), *r.word(r.p.cq.ringMask)
	for ; head != atomic.LoadUint32(r.word(r.p.cq.tail)); n++ {
		at := uintptr(r.p.cq.cqes) + uintptr(head&mask)*unsafe.Sizeof(cqe{})
		e := *(*cqe)(unsafe.Pointer(&r.mem[at]))
		results[e.userData] = e.res
		head++
		atomic.StoreUint32(r.word(r.p.cq.head), head)
	}
	return n
}

// buffer returns memory of the heap's, which stays where it is; stacks move.
//
//go:noinline
func buffer(size int) []byte { return make([]byte, size) }

// request returns an SQE on such a buffer.
func request(opcode uint8, fd int, buf []byte, off uint64) sqe {
	at := uint64(uintptr(unsafe.Pointer(&buf[0])))
	return sqe{opcode: opcode, fd: int32(fd), addr: at, len: uint32(len(buf)), off: off}
}
