package host

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins/wasm/internal/abi"
)

const (
	maxLookupRequest = 4 << 10 // bytes
	maxLookupAnswer  = 8 << 20 // bytes
)

// lookupRequest is a request of a guest: one of index, list and get.
type lookupRequest struct {
	index, key, list     string
	get, namespace, name string
	count                bool
}

// hostLookup implements lookup(request, size, buf, limit).
func hostLookup(_ context.Context, c *hostCall) int64 {
	size := c.u32(1)
	if size > maxLookupRequest {
		return abi.StatusInvalid
	}
	text, ok := c.memory.Read(c.u32(0), size)
	if !ok {
		return abi.StatusInvalid
	}
	c.charge(lookupFuel + parseFuel(int(size)))
	s := c.scope
	return int64(s.reply(c, "lookup", text, c.u32(2), c.u32(3), func() ([]byte, int32) {
		request, err := parseLookup(string(text))
		if err != nil {
			return nil, abi.StatusInvalid
		}
		if len(s.batch) == 0 {
			// before the first call the result would depend on the time at which the instance
			// starts
			return nil, abi.StatusDenied
		}
		return request.answer(c, s.host)
	}))
}

// parseLookup parses a request.
func parseLookup(text string) (r lookupRequest, err error) {
	if err := rawjson.Check(text); err != nil {
		return r, err
	}
	request := rawjson.Trim(text)
	if request.Kind() != rawjson.Object {
		return r, errors.New("not a JSON object")
	}
	texts := map[string]*string{
		"index": &r.index, "key": &r.key, "list": &r.list, "get": &r.get, "namespace": &r.namespace, "name": &r.name,
	}
	for key, value := range request.Fields() {
		into := texts[key]
		switch {
		case key == "count" && value.Kind() == rawjson.Bool:
			r.count = value.IsTrue()
		case into == nil || value.Kind() != rawjson.String:
			return r, fmt.Errorf("the member %q is unknown or of another type", key)
		default:
			*into = strings.Clone(value.Str())
		}
	}
	return r, r.check()
}

func (r *lookupRequest) check() error {
	kinds := 0
	for _, of := range []string{r.index, r.list, r.get} {
		if of != "" {
			kinds++
		}
	}
	switch {
	case kinds != 1:
		return errors.New("it has not exactly one of index, list and get")
	case r.index == "" && r.key != "", r.get == "" && (r.namespace != "" || r.name != ""), r.get != "" && r.count:
		return errors.New("its members do not fit together")
	}
	return nil
}

// answer executes the look-up.
func (r *lookupRequest) answer(c *hostCall, of *Host) ([]byte, int32) {
	source, index := r.list, ""
	switch {
	case r.get != "":
		source = r.get
	case r.index != "":
		source, index, _ = strings.Cut(r.index, ".")
		if index == "" {
			return nil, abi.StatusInvalid
		}
	}
	switch {
	case !of.mayLookUp(source, index):
		return nil, abi.StatusDenied
	case r.get != "":
		if o := of.lookup.Get(source, r.namespace, r.name); o != nil {
			return objects(c, []*event.Object{o})
		}
		return objects(c, nil)
	case r.count:
		return fmt.Appendf(nil, `{"count":%d}`, of.lookup.Count(source, index, r.key)), abi.StatusOK
	}
	c.charge(objectFuel * int64(of.lookup.Count(source, index, r.key)))
	return objects(c, of.lookup.Lookup(source, index, r.key))
}

// objects returns {"objects": […]}, unless it would be too long.
func objects(c *hostCall, all []*event.Object) ([]byte, int32) {
	const before, after = `{"objects":[`, `]}`
	size := len(before) + len(after)
	for _, o := range all {
		if size += len(o.JSON()) + 1; size > maxLookupAnswer {
			return nil, abi.StatusQuota
		}
	}
	c.charge(copyFuel(size))
	text := append(make([]byte, 0, size), before...)
	for i, o := range all {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(text, o.JSON()...)
	}
	return append(text, after...), abi.StatusOK
}
