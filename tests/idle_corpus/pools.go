// Threads of a Go program. All have the name of the program, `rest-go`, but those in a job.
package main

import (
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
	"unsafe"
)

// job keeps the goroutine's thread and gives it the name.
func job(name string, begun chan<- bool, wait func()) {
	runtime.LockOSThread()
	bytes := append([]byte(name), 0)
	syscall.Syscall(syscall.SYS_PRCTL, syscall.PR_SET_NAME, uintptr(unsafe.Pointer(&bytes[0])), 0)
	begun <- true
	wait()
	panic("not reached")
}

// confirm waits for a condition that another process would set.
func confirm() {
	var word uint32
	syscall.Syscall6(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(&word)), 0, 0, 0, 0, 0)
}

func retry() {
	hour := syscall.Timespec{Sec: 3600}
	syscall.Nanosleep(&hour, nil)
}

func main() {
	runtime.GOMAXPROCS(6)
	begun := make(chan bool)
	// They all run at the same time, so each has a thread.
	for i := 0; i < 6; i++ {
		go func() {
			for end := time.Now().Add(200 * time.Millisecond); time.Now().Before(end); {
			}
			begun <- true
			<-make(chan int)
		}()
	}
	for i := 0; i < 6; i++ {
		<-begun
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go listener.Accept()
	go func() {
		runtime.LockOSThread()
		begun <- true
		<-make(chan int)
	}()
	go job("job-gofutex", begun, confirm)
	go job("job-gosleep", begun, retry)
	for i := 0; i < 3; i++ {
		<-begun
	}
	fmt.Println("ready")
	for range time.Tick(500 * time.Millisecond) {
	}
}
