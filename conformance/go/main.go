// Rings by the runtime's own system call functions, which take the number as an argument: 200
// goroutines at once, each with a ring and on a stack of a few KiB. Half of them copy files, the
// others echo over TCP; half of each make their calls by Syscall6, the others by RawSyscall6. Every
// byte is compared. With "children" as second argument, the program first starts itself twice, with
// an environment of one string, and each child makes a ring. With "ends" as the only argument, 10,000
// threads use a ring and end instead. What is printed is the same on any
// rings.
package main

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
)

const (
	copiers  = 100
	pairs    = 50 // of goroutines: a server's, a client's
	block    = 16 << 10
	blocks   = 20
	messages = 60
	message  = 700
)

var (
	dynamic                bool
	copied, echoed, summed atomic.Uint64
)

// fill makes bytes that no other place of the program's data has.
func fill(to []byte, seed uint32) {
	state := seed*2654435761 + 1
	for i := range to {
		state = state*1664525 + 1013904223
		to[i] = byte(state >> 24)
	}
}

// copyFile copies by pairs of a read and a write that is linked to it, and compares the copy.
func copyFile(dir string, n int) {
	from, to := filepath.Join(dir, fmt.Sprint(n)), filepath.Join(dir, fmt.Sprint(n, ".copy"))
	content := make([]byte, block*blocks-n)
	fill(content, uint32(n))
	check(os.WriteFile(from, content, 0o600))
	src, err := os.Open(from)
	check(err)
	defer src.Close()
	dst, err := os.Create(to)
	check(err)
	defer dst.Close()
	r := newRing(4, n%2 == 1)
	defer r.close()
	buf := buffer(block)
	for at := 0; at < len(content); at += block {
		part := buf[:min(block, len(content)-at)]
		read := request(opRead, int(src.Fd()), part, uint64(at))
		read.flags = flagLink
		r.push(read)
		write := request(opWrite, int(dst.Fd()), part, uint64(at))
		write.userData = 1
		r.push(write)
		if got := r.run(); got[0] != int32(len(part)) || got[1] != int32(len(part)) {
			panic(fmt.Errorf("copy %d at %d: %v", n, at, got))
		}
		if at%(7*block) == 0 {
			runtime.GC()
		}
	}
	runtime.KeepAlive(buf)
	copy, err := os.ReadFile(to)
	check(err)
	if !bytes.Equal(copy, content) {
		panic(fmt.Errorf("copy %d differs", n))
	}
	copied.Add(uint64(len(copy)))
	summed.Add(uint64(crc32.ChecksumIEEE(copy)))
}

// descriptor returns a duplicate of a connection's, which blocks, and closes the connection.
func descriptor(c *net.TCPConn) *os.File {
	f, err := c.File()
	check(err)
	check(c.Close())
	return f
}

// all sends or receives the whole of a buffer.
func all(r *ring, opcode uint8, fd int, buf []byte) {
	for done := 0; done < len(buf); {
		r.push(request(opcode, fd, buf[done:], 0))
		got := r.run()[0]
		if got <= 0 {
			panic(fmt.Errorf("operation %d: %d", opcode, got))
		}
		done += int(got)
	}
}

func serve(c *net.TCPConn, raw bool) {
	f := descriptor(c)
	defer f.Close()
	r := newRing(4, raw)
	defer r.close()
	buf := buffer(message)
	for i := 0; i < messages; i++ {
		all(r, opRecv, int(f.Fd()), buf)
		all(r, opSend, int(f.Fd()), buf)
	}
	runtime.KeepAlive(buf)
}

func ask(c *net.TCPConn, n int) {
	f := descriptor(c)
	defer f.Close()
	r := newRing(4, n%2 == 0)
	defer r.close()
	sent, got := buffer(message), buffer(message)
	for i := 0; i < messages; i++ {
		fill(sent, uint32(n*messages+i))
		all(r, opSend, int(f.Fd()), sent)
		all(r, opRecv, int(f.Fd()), got)
		if !bytes.Equal(sent, got) {
			panic(fmt.Errorf("message %d of %d differs", i, n))
		}
		echoed.Add(uint64(len(got)))
		summed.Add(uint64(crc32.ChecksumIEEE(got)))
	}
	runtime.KeepAlive(sent)
}

// start runs this program as a child, which prints its environment.
func start() {
	child := exec.Command(os.Args[0], "")
	child.Env = []string{"A=1"}
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	check(child.Run())
}

func main() {
	switch {
	case len(os.Args) < 2:
		fmt.Fprintln(os.Stderr, "usage: rings DIR [children] | ends")
		os.Exit(2)
	case os.Args[1] == "":
		newRing(4, false).close()
		fmt.Println("the child has a ring, and", os.Environ())
		return
	case os.Args[1] == "ends":
		ends()
		return
	case len(os.Args) > 2:
		newRing(4, true).close()
		start()
		start()
	}
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	check(err)
	var group sync.WaitGroup
	begin := func(f func()) {
		group.Add(1)
		go func() {
			defer group.Done()
			f()
		}()
	}
	for i := 0; i < copiers; i++ {
		begin(func() { copyFile(os.Args[1], i) })
	}
	for i := 0; i < pairs; i++ {
		client, err := net.DialTCP("tcp", nil, listener.Addr().(*net.TCPAddr))
		check(err)
		server, err := listener.AcceptTCP()
		check(err)
		begin(func() { serve(server, i%4 < 2) })
		begin(func() { ask(client, i) })
	}
	group.Wait()
	fmt.Printf("copied %d bytes, echoed %d, sum %#x\n", copied.Load(), echoed.Load(), summed.Load())
}
