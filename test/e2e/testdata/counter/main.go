// Counter counts the changes of each object, and reports the number of objects with the same value.
package main

import (
	"encoding/json"
	"strconv"

	deltarouter "github.com/deltarouter/deltarouter/sdk/go"
)

var _ = deltarouter.Handle(count)

func main() {}

func count(d deltarouter.Delta) ([]deltarouter.Event, error) {
	var object struct {
		Data struct {
			Value string `json:"value"`
		} `json:"data"`
	}
	if err := json.Unmarshal(d.Object, &object); err != nil {
		return nil, err
	}
	same, err := deltarouter.Count("maps.byValue", object.Data.Value)
	if err != nil {
		return nil, err
	}
	before, _, err := deltarouter.KVGet(d.UID)
	if err != nil {
		return nil, err
	}
	n, _ := strconv.Atoi(string(before)) // 0 if there is none
	n++
	if err := deltarouter.KVSet(d.UID, []byte(strconv.Itoa(n)), 0); err != nil {
		return nil, err
	}
	return []deltarouter.Event{{Data: map[string]int{"n": n, "same": same}}}, nil
}
