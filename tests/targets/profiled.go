// Writes a CPU profile of itself, and one of its memory, by Go's own profiler: `profiled CPU HEAP`.
package main

import (
	"os"
	"runtime/pprof"
	"syscall"
	"time"
)

// Own CPU time, in user mode.
func used() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano())
}

// However busy the machine is: by CPU time.
//
//go:noinline
func burn(till time.Duration) (x uint64) {
	for start := used(); used()-start < till; {
		for i := uint64(0); i < 100000; i++ {
			x = x*6364136223846793005 + i
		}
	}
	return x
}

func create(path string) *os.File {
	file, err := os.Create(path)
	if err != nil {
		panic(err)
	}
	return file
}

func main() {
	cpu, heap := create(os.Args[1]), create(os.Args[2])
	if err := pprof.StartCPUProfile(cpu); err != nil {
		panic(err)
	}
	if burn(500*time.Millisecond) == 1 {
		panic("never")
	}
	pprof.StopCPUProfile()
	if err := pprof.WriteHeapProfile(heap); err != nil {
		panic(err)
	}
	if cpu.Close() != nil || heap.Close() != nil {
		panic("not written")
	}
}
