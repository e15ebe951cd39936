// A shop of one process: a server, its clients, and a pipeline that packs orders. Go 1.18 or newer.
//
//	demos/go/run     in sampletop
//	go run . 60      alone, in this folder; the argument is the number of seconds it runs
//	                 (default: 600)
//
// What you should see: groups by what goroutines were started with. Most of the time on the CPU is in
// `net/http.(*conn).serve`, whose `(*Shop).catalog` makes a page of a thousand items. It allocates much,
// so the garbage collector has a part, and these goroutines have to help it. `main.pack`, the last of
// three goroutines of a pipeline, computes checksums; `main.check` before it has a fifth of its work,
// and `main.read` hardly any.
//
// Customers who ask for a price wait for one mutex, which is held while the price is written to the
// journal. They are on no thread meanwhile. `sampletop dump -p PID` shows them as `sync.Mutex.Lock`
// (before Go 1.20: `semacquire`).
package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sort"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// An Item is what can be bought.
type Item struct {
	Name  string
	Price int
	Tags  []string
}

// A Shop has prices, and a journal of those that were asked for.
type Shop struct {
	served int64

	mutex   sync.Mutex
	prices  map[string]int
	journal *os.File
}

// catalog answers with all items, the cheapest first.
func (s *Shop) catalog(w http.ResponseWriter, r *http.Request) {
	var items []Item
	for i := 0; i < 1000; i++ {
		name := fmt.Sprintf("item %d", i*7919%1000)
		items = append(items, Item{Name: name, Price: i * 7919 % 1000, Tags: []string{"new", "sale"}})
	}
	sort.Slice(items, func(i, j int) bool { return items[i].Price < items[j].Price })
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(items)
	atomic.AddInt64(&s.served, 1)
}

// price answers with one price. It holds the mutex too long.
func (s *Shop) price(w http.ResponseWriter, r *http.Request) {
	s.mutex.Lock()
	price := s.prices["tea"]
	s.note(price)
	s.mutex.Unlock()
	fmt.Fprintln(w, price)
	atomic.AddInt64(&s.served, 1)
}

// note writes to the journal, on a disk that takes its time.
func (s *Shop) note(price int) {
	fmt.Fprintln(s.journal, "asked for", price)
	time.Sleep(2 * time.Millisecond)
}

// read takes orders from outside, four thousand a second at most.
func read(orders chan<- []byte) {
	for n := 0; ; n++ {
		orders <- []byte("order " + strconv.Itoa(n))
		if n%40 == 0 {
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// check hands on the orders that are valid.
func check(orders <-chan []byte, valid chan<- []byte) {
	for order := range orders {
		if hash(order, 100)[0] < 250 {
			valid <- order
		}
	}
}

// pack signs orders.
func pack(orders <-chan []byte) {
	for order := range orders {
		hash(order, 500)
	}
}

// hash returns a checksum that takes time.
func hash(data []byte, times int) []byte {
	for ; times > 0; times-- {
		sum := sha256.Sum256(data)
		data = sum[:]
	}
	return data
}

// buy asks for one page after the other.
func buy(client *http.Client, url string) {
	for {
		answer, err := client.Get(url)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
	}
}

func main() {
	seconds := 600
	if len(os.Args) > 1 {
		n, err := strconv.Atoi(os.Args[1])
		if err != nil {
			fmt.Fprintln(os.Stderr, "usage: shop [SECONDS]")
			os.Exit(2)
		}
		seconds = n
	}
	journal, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	shop := &Shop{prices: map[string]int{"tea": 3}, journal: journal}
	mux := http.NewServeMux()
	mux.HandleFunc("/catalog", shop.catalog)
	mux.HandleFunc("/price", shop.price)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	go func() {
		fmt.Fprintln(os.Stderr, http.Serve(listener, mux))
		os.Exit(1)
	}()

	orders, valid := make(chan []byte, 100), make(chan []byte, 100)
	go read(orders)
	go check(orders, valid)
	go pack(valid)

	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}
	for i := 0; i < 2; i++ {
		go buy(client, "http://"+listener.Addr().String()+"/catalog")
	}
	for i := 0; i < 12; i++ {
		go buy(client, "http://"+listener.Addr().String()+"/price")
	}
	fmt.Println("ready")
	time.Sleep(time.Duration(seconds) * time.Second)
	fmt.Printf("%d requests in %d s\n", atomic.LoadInt64(&shop.served), seconds)
}
