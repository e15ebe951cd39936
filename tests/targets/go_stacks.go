// Goroutines in known chains of calls, each on a thread of its own: blocked in system calls, and running. Prints `ready`
// when all are there; for each line that it reads it prints how its own runtime sees them, and `end`.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

var pipe [2]int
var started, total int32
var sink uint64
var large []byte

// Frames of different sizes, and one that is reached through a pointer.
type node struct{ depth int }

type waiter interface{ wait(depth int) byte }

//go:noinline
func (n node) wait(depth int) byte {
	var room [64]byte
	room[depth&63] = byte(n.depth)
	if depth > 0 {
		return room[depth&63] + n.wait(depth-1)
	}
	return room[0] + read(pipe[0])
}

//go:noinline
func read(fd int) byte {
	var one [1]byte
	atomic.AddInt32(&started, 1)
	syscall.Read(fd, one[:])
	return one[0]
}

//go:noinline
func rawRead(fd int) uintptr {
	var one [1]byte
	atomic.AddInt32(&started, 1)
	n, _, _ := syscall.Syscall(syscall.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&one)), 1)
	return n
}

//go:noinline
func spin() {
	atomic.AddInt32(&started, 1)
	for {
		sink = leaf(sink)
	}
}

// Its runtime asks for new memory on the stack of the thread.
//
//go:noinline
func grow() {
	atomic.AddInt32(&started, 1)
	for {
		large = make([]byte, 40<<10)
	}
}

//go:noinline
func leaf(x uint64) uint64 {
	return x*6364136223846793005 + 1
}

//go:noinline
func outer(kind string) {
	runtime.LockOSThread()
	switch kind {
	case "direct":
		read(pipe[0])
	case "raw":
		rawRead(pipe[0])
	case "deep":
		var w waiter = node{7}
		w.wait(60)
	case "closure":
		each([]int{1}, func(int) { read(pipe[0]) })
	case "deferred":
		defer func() { read(pipe[0]) }()
		panic(recover())
	case "generic":
		apply(map[string]node{}, func(map[string]node) byte { return read(pipe[0]) })
	case "spin":
		spin()
	case "grow":
		grow()
	}
}

//go:noinline
func apply[T, U any](to T, call func(T) U) U {
	return inlined(to, call)
}

func inlined[T, U any](to T, call func(T) U) U {
	result := call(to)
	sink++
	return result
}

//go:noinline
func each(all []int, call func(int)) {
	for _, one := range all {
		call(one)
	}
}

func main() {
	if err := syscall.Pipe(pipe[:]); err != nil {
		panic(err)
	}
	kinds := []string{"direct", "raw", "deep", "closure", "deferred", "generic"}
	kinds = append(kinds, more()...)
	if len(os.Args) > 1 {
		kinds = os.Args[1:]
	}
	for _, kind := range kinds {
		total++
		go func(kind string) {
			if !special(kind) {
				outer(kind)
			}
		}(kind)
	}
	for atomic.LoadInt32(&started) < total {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(10 * time.Millisecond)
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		pprof.Lookup("goroutine").WriteTo(os.Stdout, 2)
		fmt.Println("end")
	}
}
