// Goroutines that wait in every way, in known chains of calls. Prints `ready` when all are there; for each line that it
// reads it prints how its own runtime sees them, and `end`. With the argument `again` it executes itself after a second.
package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"runtime"
	"runtime/pprof"
	"sync"
	"syscall"
	"time"
)

type worker struct {
	jobs  chan int
	mutex sync.Mutex
	both  sync.RWMutex
	read  sync.RWMutex
	group sync.WaitGroup
	ready *sync.Cond
}

//go:noinline
func (w *worker) receive(depth int) int {
	var room [32]byte
	room[depth&31] = byte(depth)
	if depth > 0 {
		return int(room[depth&31]) + w.receive(depth-1)
	}
	return <-w.jobs
}

func (w *worker) inlined() int { return w.receive(3) }

//go:noinline
func choose[T any](a, b chan T) (value T) {
	select {
	case value = <-a:
	case value = <-b:
	}
	return
}

//go:noinline
func offer(a chan<- int, b <-chan int) {
	select {
	case a <- 1:
	case <-b:
	}
}

//go:noinline
func locked(mutex sync.Locker) {
	mutex.Lock()
	mutex.Unlock()
}

func each(count int, call func(int)) {
	for i := 0; i < count; i++ {
		call(i)
	}
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "again" {
		time.AfterFunc(time.Second, func() { syscall.Exec("/proc/self/exe", os.Args[:1], os.Environ()) })
	}
	w := &worker{jobs: make(chan int)}
	w.ready = sync.NewCond(&sync.Mutex{})
	w.mutex.Lock()
	w.both.Lock()
	w.read.RLock()
	w.group.Add(1)
	full := make(chan int)
	var none chan int
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go w.receive(0)
	go w.receive(20)
	go w.receive(2000)
	go func() { w.inlined() }()
	go func() { full <- 1 }()
	go func() { <-none }()
	go func() { none <- 1 }()
	go choose(w.jobs, make(chan int))
	go choose(make(chan string), nil)
	go offer(make(chan int), w.jobs)
	go offer(full, make(chan int))
	go func() { select {} }()
	go locked(&w.mutex)
	go locked(&w.both)
	go locked(w.both.RLocker())
	go locked(&w.read)
	for i := 0; i < 20; i++ {
		go locked(&w.mutex)
	}
	go w.group.Wait()
	go func() {
		w.ready.L.Lock()
		w.ready.Wait()
	}()
	go time.Sleep(time.Hour)
	go listener.Accept()
	go func() {
		connection, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			panic(err)
		}
		connection.Read(make([]byte, 1))
	}()
	go each(1, func(int) { <-context.Background().Done() })
	go func() {
		defer func() { <-w.jobs }()
		panic(recover())
	}()
	for i := 0; i < 100; i++ {
		go func() { <-w.jobs }()
	}
	if len(os.Args) > 1 {
		go func() {
			for {
				runtime.Gosched()
			}
		}()
	}
	time.Sleep(300 * time.Millisecond)
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		pprof.Lookup("goroutine").WriteTo(os.Stdout, 2)
		fmt.Println("end")
	}
}
