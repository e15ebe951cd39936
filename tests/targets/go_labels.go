// A program with labels (runtime/pprof): shares of its time by label are known, and its own CPU
// profile has them too. With a file's name it profiles itself until it reads a line; with `always`
// all that runs has one label.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"runtime/pprof"
	"syscall"
)

var (
	total uint64
	sink  []byte
)

// Works for some time; always the same for a unit.
//
//go:noinline
func spin(units int) {
	for i := 0; i < units*2_000_000; i++ {
		total = total*31 + uint64(i)
	}
}

// Allocates, partly on the thread's own stack, and makes garbage.
//
//go:noinline
func grow() {
	for i := 0; i < 100; i++ {
		sink = make([]byte, 64<<10)
	}
}

func labelled(work func(), labels ...string) {
	pprof.Do(context.Background(), pprof.Labels(labels...), func(context.Context) { work() })
}

func serve() {
	for request := 0; ; request++ {
		labelled(func() { spin(3) }, "handler", "/catalog", "tenant", fmt.Sprint(request%2))
		// A goroutine has the labels of the one that started it.
		labelled(func() {
			done := make(chan bool)
			go func() {
				spin(2)
				close(done)
			}()
			<-done
		}, "handler", "/cart", "tenant", "7")
		labelled(grow, "handler", "/grow")
		spin(1)
	}
}

func main() {
	always := len(os.Args) > 1 && os.Args[1] == "always"
	if len(os.Args) > 1 && !always {
		file, err := os.Create(os.Args[1])
		if err == nil {
			err = pprof.StartCPUProfile(file)
		}
		if err != nil {
			panic(err)
		}
	}
	started := make(chan bool)
	for n := 0; n < 3; n++ {
		go labelled(func() {
			started <- true
			select {}
		}, "handler", "/wait", "odd", `a, "b"=`)
	}
	var many []string
	for n := 0; n < 12; n++ {
		many = append(many, fmt.Sprintf("k%02d", n), fmt.Sprint(n))
	}
	go labelled(func() {
		started <- true
		select {}
	}, many...)
	var pipe [2]int
	if err := syscall.Pipe(pipe[:]); err != nil {
		panic(err)
	}
	go labelled(func() {
		started <- true
		syscall.Read(pipe[0], make([]byte, 1))
	}, "handler", "/read")
	for n := 0; n < 5; n++ {
		<-started
	}
	if always {
		go labelled(func() {
			for {
				spin(1)
			}
		}, "handler", "/always")
	} else {
		go serve()
	}
	fmt.Println("ready")
	bufio.NewReader(os.Stdin).ReadString('\n')
	pprof.StopCPUProfile()
	fmt.Println("end")
}
