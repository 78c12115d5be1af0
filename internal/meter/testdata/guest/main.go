// Command guest does work that is typical of handlers, for measurements.
package main

import (
	"encoding/json"
	"sort"
	"strings"
)

func main() {}

var object = func() []byte {
	container := `{"name":"c","image":"registry.example.com/app@sha256:0123456789abcdef","ports":[{"containerPort":8080}],` +
		`"resources":{"limits":{"cpu":"100m","memory":"64Mi"}},"env":[{"name":"A","value":"b \u00e9"},{"name":"N","value":"12"}]}`
	return []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"default","labels":{"app":"web","tier":"front"},` +
		`"annotations":{"note":"` + strings.Repeat("x", 200) + `"}},"spec":{"containers":[` + strings.Repeat(container+",", 4) + container +
		`]},"status":{"phase":"Running","restarts":3,"ratio":0.25}}`)
}()

// parse parses an object n times.
//
//go:wasmexport parse
func parse(n int32) int32 {
	sum := 0
	for range n {
		var v map[string]any
		if err := json.Unmarshal(object, &v); err != nil {
			return -1
		}
		sum += len(v)
	}
	return int32(sum)
}

type pod struct {
	Metadata struct {
		Name   string            `json:"name"`
		Labels map[string]string `json:"labels"`
	} `json:"metadata"`
	Spec struct {
		Containers []struct {
			Name  string `json:"name"`
			Image string `json:"image"`
		} `json:"containers"`
	} `json:"spec"`
}

// typed parses the object into a struct n times.
//
//go:wasmexport typed
func typed(n int32) int32 {
	sum := 0
	for range n {
		var v pod
		if err := json.Unmarshal(object, &v); err != nil {
			return -1
		}
		sum += len(v.Spec.Containers)
	}
	return int32(sum)
}

// sorted sorts n strings.
//
//go:wasmexport sorted
func sorted(n int32) int32 {
	words := make([]string, n)
	seed := uint32(1)
	for i := range words {
		seed = seed*1664525 + 1013904223
		words[i] = strings.Repeat(string(rune('a'+(seed>>24)%26)), int((seed>>20)%16)+1)
	}
	sort.Strings(words)
	return int32(len(words[n/2]))
}
