// Opens the plugin that is its argument, and calls its function Start.
package main

import (
	"fmt"
	"os"
	"plugin"
)

func main() {
	opened, err := plugin.Open(os.Args[1])
	if err != nil {
		panic(err)
	}
	start, err := opened.Lookup("Start")
	if err != nil {
		panic(err)
	}
	start.(func())()
	fmt.Println("ready")
	select {}
}
