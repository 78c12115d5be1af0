package sandboxtest

import (
	"context"
	"fmt"
)

// Edit is a change of a stored object. Change returns its other stored form, or nil to delete it.
// The stored form is protobuf: a text in it may be replaced by another one of the same length.
type Edit struct {
	Name   string
	Change func(stored []byte) []byte
}

// Together edits objects, in this order, in one transaction of etcd, so that their events have one
// resourceVersion, like those of Events that expire together. It returns that version. The folder
// is that of the objects in etcd, such as /registry/configmaps/NAMESPACE/. Nothing else may change
// these objects meanwhile. The method may be used with the shared sandbox.
func (s *Sandbox) Together(ctx context.Context, folder string, edits []Edit) (version string, err error) {
	type request map[string]any
	keyOf := func(name string) []byte { return []byte(folder + name) }
	var reads, writes []request
	for _, e := range edits {
		reads = append(reads, request{"request_range": request{"key": keyOf(e.Name)}})
	}
	var before struct {
		Responses []struct {
			Range struct{ Kvs []struct{ Value []byte } } `json:"response_range"`
		}
	}
	if err := s.etcdCall(ctx, "/v3/kv/txn", request{"success": reads}, &before); err != nil {
		return "", err
	}
	for i, read := range before.Responses {
		key := keyOf(edits[i].Name)
		if len(read.Range.Kvs) != 1 {
			return "", fmt.Errorf("etcd has no %s%s", folder, edits[i].Name)
		}
		write := request{"request_delete_range": request{"key": key}}
		if edited := edits[i].Change(read.Range.Kvs[0].Value); edited != nil {
			write = request{"request_put": request{"key": key, "value": edited}}
		}
		writes = append(writes, write)
	}
	var after struct{ Header struct{ Revision string } }
	err = s.etcdCall(ctx, "/v3/kv/txn", request{"success": writes}, &after)
	return after.Header.Revision, err
}
