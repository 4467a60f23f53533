package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	opNop     = 0
	opPollAdd = 6

	pollIn = 1

	enders = 10000
	atOnce = 100
)

// onThread runs f on a thread that ends with it.
func onThread(f func()) {
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer close(done)
		f()
	}()
	<-done
}

// ends has threads use one ring and end, counts what is mapped, and leaves a request behind: no
// thread is there to complete it. Threads of the runtime end only with their locked goroutine.
func ends() {
	r := newRing(4, false)
	var lock sync.Mutex
	before := 0
	for i := 0; i < enders; i += atOnce {
		var group sync.WaitGroup
		for n := 0; n < atOnce; n++ {
			group.Add(1)
			go onThread(func() {
				defer group.Done()
				lock.Lock()
				defer lock.Unlock()
				r.push(sqe{opcode: opNop})
				if got := r.run(); got[0] != 0 {
					panic(fmt.Errorf("NOP: %v", got))
				}
			})
		}
		group.Wait()
		if i == 9*atOnce {
			time.Sleep(100 * time.Millisecond)
			before = mappings()
		}
	}
	time.Sleep(100 * time.Millisecond)
	if now := mappings(); now > before+100 {
		panic(fmt.Errorf("%d mappings, then %d", before, now))
	}
	var pipe [2]int
	check(syscall.Pipe(pipe[:]))
	onThread(func() {
		r.push(sqe{opcode: opPollAdd, fd: int32(pipe[0]), rwFlags: pollIn})
		_, _, errno := r.call(sysEnter, uintptr(r.fd), 1, 0, 0, 0, 0)
		if errno != 0 {
			panic(errno)
		}
		r.queued = 0
	})
	time.Sleep(100 * time.Millisecond)
	_, err := syscall.Write(pipe[1], []byte("x"))
	check(err)
	results := make([]int32, 1)
	for r.reap(results) == 0 {
		r.call(sysEnter, uintptr(r.fd), 0, 1, enterGetevents, 0, 0)
	}
	fmt.Println("the thread's request:", results[0])
}

func mappings() int {
	maps, err := os.ReadFile("/proc/self/maps")
	check(err)
	return strings.Count(string(maps), "\n")
}
