package host

import (
	"context"

	"github.com/deltarouter/deltarouter/internal/kv"
	"github.com/deltarouter/deltarouter/pkg/plugins/wasm/internal/abi"
)

// key reads a key from the guest's memory.
func (c *hostCall) key() (string, bool) {
	at, size := c.u32(0), c.u32(1)
	if size == 0 || size > kv.MaxKey {
		return "", false
	}
	c.charge(kvFuel + 2*int64(size))
	key, ok := c.memory.Read(at, size)
	return string(key), ok
}

// hostKVGet implements kv_get(key, keySize, buf, limit).
func hostKVGet(_ context.Context, c *hostCall) int64 {
	key, ok := c.key()
	if !ok {
		return abi.StatusInvalid
	}
	value, ok := c.scope.overlay.Get(key)
	if !ok {
		return abi.StatusNotFound
	}
	c.charge(copyFuel(len(value)))
	if uint64(len(value)) <= uint64(c.u32(3)) && !c.memory.Write(c.u32(2), value) {
		return abi.StatusInvalid
	}
	return int64(len(value))
}

// hostKVSet implements kv_set(key, keySize, value, valueSize, ttl_ms).
func hostKVSet(_ context.Context, c *hostCall) int64 {
	key, ok := c.key()
	ttl := int64(c.stack[4]) //nolint:gosec // it is one
	if !ok || ttl < 0 {
		return abi.StatusInvalid
	}
	value, ok := c.memory.Read(c.u32(2), c.u32(3))
	if !ok {
		return abi.StatusInvalid
	}
	if int64(len(value)) > int64(c.scope.limits.KV) {
		return abi.StatusQuota // avoid the copy
	}
	c.charge(keepFuel + 6*copyFuel(len(value)))
	if c.scope.overlay.Set(key, append([]byte{}, value...), ttl) != nil {
		return abi.StatusQuota
	}
	return abi.StatusOK
}

// hostKVDel implements kv_del(key, keySize).
func hostKVDel(_ context.Context, c *hostCall) int64 {
	key, ok := c.key()
	if !ok {
		return abi.StatusInvalid
	}
	o := c.scope.overlay
	if _, there := o.Get(key); !there {
		return abi.StatusNotFound
	}
	if o.Delete(key) != nil {
		return abi.StatusQuota
	}
	return abi.StatusOK
}
