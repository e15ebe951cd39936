// Goroutines that each keep a thread in a system call for good, 30 functions deep. Argument: how many. Says `ready`.
package main

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"syscall"
)

type order struct{ depth int }

//go:noinline
func (o order) total(wait func() int) int {
	if o.depth == 0 {
		return wait()
	}
	return deeper(order{o.depth - 1}, wait) + 1
}

//go:noinline
func deeper(o order, wait func() int) (sum int) {
	each([]order{o}, func(one order) { sum += one.total(wait) })
	return
}

//go:noinline
func each(orders []order, call func(order)) {
	for _, one := range orders {
		call(one)
	}
}

func main() {
	count, _ := strconv.Atoi(os.Args[1])
	var pipe [2]int
	syscall.Pipe(pipe[:])
	var waiting sync.WaitGroup
	waiting.Add(count)
	for n := 0; n < count; n++ {
		go order{8}.total(func() int {
			waiting.Done()
			var one [1]byte
			read, _ := syscall.Read(pipe[0], one[:])
			return read
		})
	}
	waiting.Wait()
	fmt.Println("ready")
	select {}
}
