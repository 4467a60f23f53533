// Goroutines that make, enter and close rings while their stacks move: 200 at once, each on a stack
// of 2 KiB. By way of the runtime's own system call function, which takes the number as an argument.
package main

/*
static int goroutines(void) { return 200; }
*/
import "C" // the dynamic loader's: a static program has no preloaded library

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"
)

const (
	setup    = 425
	enter    = 426
	register = 427
	probe    = 8 // IORING_REGISTER_PROBE
)

var failed atomic.Int64

func check(what string, errno syscall.Errno) bool {
	if errno != 0 && failed.Add(1) < 5 {
		fmt.Println(what, errno)
	}
	return errno == 0
}

func rings() {
	for n := 0; n < 25; n++ {
		var params [30]uint32
		var probes [4 + 2*256]uint32
		fd, _, errno := syscall.RawSyscall6(setup, 4, uintptr(unsafe.Pointer(&params)), 0, 0, 0, 0)
		if !check("setup", errno) {
			return
		}
		for k := 0; k < 20; k++ {
			_, _, errno = syscall.Syscall6(enter, fd, 0, 0, 1, 0, 0)
			check("enter", errno)
		}
		at := uintptr(unsafe.Pointer(&probes))
		_, _, errno = syscall.Syscall6(register, fd, probe, at, 256, 0, 0)
		check("register", errno)
		syscall.Close(int(fd))
		if n%10 == 0 {
			runtime.GC()
		}
	}
}

func main() {
	var all sync.WaitGroup
	for i := 0; i < int(C.goroutines()); i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			rings()
		}()
	}
	all.Wait()
	if failed.Load() != 0 {
		os.Exit(1)
	}
}
