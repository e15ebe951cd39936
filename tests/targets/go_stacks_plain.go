// Nothing but Go. Added to go_stacks.go.
package main

func more() []string { return nil }

func special(string) bool { return false }
