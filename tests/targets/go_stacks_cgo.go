// The same with C: called by Go and blocked there, running there, and called back from there. Added to go_stacks.go.
package main

/*
#include <unistd.h>
static int read_in_c(int fd) { char one; return (int)read(fd, &one, 1) + one; }
static volatile unsigned long in_c;
static void spin_in_c(void) { for (;;) in_c++; }
extern void goCallback(int);
static int call_back(int fd) { goCallback(fd); return fd + 1; }
*/
import "C"

import (
	"runtime"
	"sync/atomic"
	"time"
)

//export goCallback
func goCallback(fd C.int) {
	if fd < 0 {
		clock()
		return
	}
	read(int(fd))
}

// Its runtime calls the vDSO on the stack of the thread.
//
//go:noinline
func clock() {
	for start := time.Now(); time.Since(start) < 5*time.Millisecond; {
		sink++
	}
}

func more() []string { return []string{"in_c", "callback"} }

//go:noinline
func special(kind string) bool {
	if kind == "in_c" || kind == "callback" || kind == "spin_in_c" || kind == "clock" {
		runtime.LockOSThread()
		atomic.AddInt32(&started, 1)
	}
	switch kind {
	case "in_c":
		C.read_in_c(C.int(pipe[0]))
	case "spin_in_c":
		C.spin_in_c()
	case "clock":
		for {
			C.call_back(-1)
		}
	case "callback":
		atomic.AddInt32(&started, -1)
		C.call_back(C.int(pipe[0]))
	default:
		return false
	}
	return true
}
