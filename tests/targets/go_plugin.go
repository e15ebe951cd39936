// A plugin whose functions work and wait. `-buildmode=plugin` gives it copies of the runtime's functions of its own.
package main

type worker struct{ sum int }

//go:noinline
func (w *worker) burn() {
	for i := 0; i < 1000000; i++ {
		w.sum = (w.sum*20077 + i) & 0xffff
	}
}

func (w *worker) work() {
	for {
		w.burn()
	}
}

//go:noinline
func (w *worker) receive(jobs chan int) int { return <-jobs }

// Start starts a goroutine that works, and three that wait.
func Start() {
	jobs := make(chan int)
	go new(worker).work()
	for i := 0; i < 3; i++ {
		go new(worker).receive(jobs)
	}
}

func main() {}
