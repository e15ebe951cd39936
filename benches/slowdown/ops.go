// Goroutines that count what they do, as ops.py. Arguments: how many goroutines wait, and how many work.
//
// For each line on standard input it prints operations, its CPU time and the clock, ns.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"sort"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
)

type record struct {
	ID   int      `json:"id"`
	Name string   `json:"name"`
	Tags []string `json:"tags"`
}

var (
	done    atomic.Int64
	pattern = regexp.MustCompile(`(\w+) (\d+)`)
)

func operation(records []record) int {
	text, _ := json.Marshal(records)
	found := pattern.FindAllString(string(text), -1)
	sort.Sort(sort.Reverse(sort.StringSlice(found)))
	var read []record
	json.Unmarshal(text, &read)
	return len(found) + len(read)
}

//go:noinline
func deep(depth int, records []record) int {
	if depth == 0 {
		return operation(records)
	}
	return deep(depth-1, records) + 1
}

func work() {
	var records []record
	for i := 0; i < 20; i++ {
		records = append(records, record{i, fmt.Sprint("name ", i), []string{"a", fmt.Sprint(i)}})
	}
	for {
		deep(20, records)
		done.Add(1)
	}
}

func main() {
	waiting, _ := strconv.Atoi(os.Args[1])
	working, _ := strconv.Atoi(os.Args[2])
	never := make(chan int)
	for i := 0; i < waiting; i++ {
		go func() { <-never }()
	}
	for i := 0; i < working; i++ {
		go work()
	}
	start := time.Now()
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var usage syscall.Rusage
		syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
		fmt.Println(done.Load(), usage.Utime.Nano()+usage.Stime.Nano(), time.Since(start).Nanoseconds())
	}
}
