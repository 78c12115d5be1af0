package host

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/abi"
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
func hostLookup(ctx context.Context, c *hostCall) int64 {
	size := c.u32(1)
	if size > maxLookupRequest {
		return abi.StatusInvalid
	}
	text, ok := c.memory.Read(c.u32(0), size)
	if !ok {
		return abi.StatusInvalid
	}
	c.charge(lookupFuel + parseFuel(int(size)))
	return int64(c.scope.reply(c, "lookup", text, c.u32(2), c.u32(3), func() ([]byte, int32) { return c.scope.find(ctx, string(text)) }))
}

// find answers the request of a guest for objects.
func (s *Scope) find(ctx context.Context, text string) ([]byte, int32) {
	request, err := parseLookup(text)
	if err != nil {
		return nil, abi.StatusInvalid
	}
	if len(s.batch) == 0 {
		// before the first call the result would depend on the time at which the instance starts
		return nil, abi.StatusDenied
	}
	return s.answers.obtain("lookup", text, func() ([]byte, int32) { return request.answer(ctx, s) })
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
func (r *lookupRequest) answer(ctx context.Context, s *Scope) ([]byte, int32) {
	of, q := s.host, plugins.LookupQuery{Source: r.list, Value: r.key, Namespace: r.namespace, Count: r.count, Deltas: s.batch}
	switch {
	case r.get != "":
		q.Source, q.Name = r.get, r.name
	case r.index != "":
		q.Source, q.Index, _ = strings.Cut(r.index, ".")
		if q.Index == "" {
			return nil, abi.StatusInvalid
		}
	}
	switch {
	case !of.mayLookUp(q.Source, q.Index):
		return nil, abi.StatusDenied
	case r.get != "" && r.name == "":
		return objects(s, nil)
	}
	_, remote := of.lookup.(plugins.RemoteLookup)
	if !remote && r.get == "" && !r.count {
		s.tank.charge(objectFuel * int64(of.lookup.Count(q.Source, q.Index, q.Value)))
	}
	if remote {
		var cancel context.CancelFunc
		ctx, cancel = s.patience(ctx)
		defer cancel()
	}
	found, count, err := plugins.Ask(ctx, of.lookup, q)
	switch {
	case plugins.ClassOf(err) == plugins.Rejected:
		return nil, abi.StatusQuota
	case err != nil:
		s.unanswered = err
		return nil, abi.StatusTooLate
	case r.count:
		return fmt.Appendf(nil, `{"count":%d}`, count), abi.StatusOK
	}
	if remote {
		s.tank.charge(objectFuel * int64(count))
	}
	for _, o := range found {
		s.answers.Saw(o)
	}
	return objects(s, found)
}

// objects returns {"objects": […]}, unless it would be too long.
func objects(s *Scope, all []*event.Object) ([]byte, int32) {
	const before, after = `{"objects":[`, `]}`
	size := len(before) + len(after)
	for _, o := range all {
		if size += len(o.JSON()) + 1; size > maxLookupAnswer {
			return nil, abi.StatusQuota
		}
	}
	s.tank.charge(copyFuel(size))
	text := append(make([]byte, 0, size), before...)
	for i, o := range all {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(text, o.JSON()...)
	}
	return append(text, after...), abi.StatusOK
}

// The objects of a delta whose fields a guest may request.
const (
	fieldOfObject = 0 // after the change, or the last state of an object that is gone
	fieldOfOld    = 1
)

// longestPath bounds a path in bytes.
const longestPath = 1 << 10

// hostField implements field(delta, which, path, pathSize). The result is the place of the field in
// the text of the object, offset << 32 | length: the guest has the text already.
func hostField(_ context.Context, c *hostCall) int64 {
	s, delta, size := c.scope, c.u32(0), c.u32(3)
	if uint64(delta) >= uint64(len(s.batch)) || size > longestPath {
		return abi.StatusInvalid
	}
	path, ok := c.memory.Read(c.u32(2), size)
	if !ok {
		return abi.StatusInvalid
	}
	object := s.batch[delta].Object()
	switch c.u32(1) {
	case fieldOfObject:
	case fieldOfOld:
		if object = s.batch[delta].Old; object == nil {
			return abi.StatusNotFound
		}
	default:
		return abi.StatusInvalid
	}
	offset, length, read := findField(object, unsafe.String(unsafe.SliceData(path), len(path)))
	c.charge(fieldFuel + scanFuel(read))
	if length == 0 {
		return abi.StatusNotFound
	}
	return int64(offset)<<32 | int64(length)
}

// findField returns the place of a field in the text of an object, and the bytes that were read to
// find it without an index: the fuel of a call is the same with and without one. The length 0 means
// that there is no such field.
func findField(object *event.Object, path string) (offset, length, read int) {
	size := len(object.Raw())
	key, path, more := nextKey(path)
	open := object.Member(key)
	for more && open != "" {
		key, path, more = nextKey(path)
		open = rawjson.Member(open, key)
	}
	if open == "" {
		return 0, 0, size
	}
	offset, length = size-len(open), len(rawjson.Closed(open))
	return offset, length, offset + length
}

// nextKey returns the first key of a path, and the path behind it. A backslash takes the character
// behind it literally, so that a key may contain dots.
func nextKey(path string) (key, rest string, more bool) {
	end := strings.IndexAny(path, `.\`)
	if end < 0 {
		return path, "", false
	}
	if path[end] == '.' {
		return path[:end], path[end+1:], true
	}
	b := []byte(path[:end])
	for i := end; i < len(path); i++ {
		switch c := path[i]; {
		case c == '.':
			return string(b), path[i+1:], true
		case c == '\\' && i+1 < len(path):
			i++
			b = append(b, path[i])
		default:
			b = append(b, c)
		}
	}
	return string(b), "", false
}
