package host

import (
	"context"

	"github.com/deltarouter/deltarouter/internal/kv"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/abi"
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
	value, status := Services{c.scope}.load(key)
	if status < 0 {
		return int64(status)
	}
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
	return int64(Services{c.scope}.store(key, append([]byte{}, value...), ttl))
}

// hostKVDel implements kv_del(key, keySize).
func hostKVDel(_ context.Context, c *hostCall) int64 {
	key, ok := c.key()
	if !ok {
		return abi.StatusInvalid
	}
	return int64(Services{c.scope}.remove(key))
}

// load returns a value.
func (s Services) load(key string) ([]byte, int32) {
	value, status := s.scope.answers.obtain("kv_get", key, func() ([]byte, int32) {
		if value, ok := s.scope.overlay.Get(key); ok {
			return value, abi.StatusOK
		}
		return nil, abi.StatusNotFound
	})
	s.scope.tank.charge(copyFuel(len(value)))
	return value, status
}

// store keeps a value, which nothing else refers to.
func (s Services) store(key string, value []byte, ttl int64) int32 {
	s.scope.tank.charge(keepFuel + 6*copyFuel(len(value)))
	_, status := s.scope.answers.obtain("kv_set", key, func() ([]byte, int32) {
		if s.scope.overlay.Set(key, value, ttl) != nil {
			return nil, abi.StatusQuota
		}
		return nil, abi.StatusOK
	})
	return status
}

// remove forgets a value.
func (s Services) remove(key string) int32 {
	_, status := s.scope.answers.obtain("kv_del", key, func() ([]byte, int32) {
		if _, there := s.scope.overlay.Get(key); !there {
			return nil, abi.StatusNotFound
		}
		if s.scope.overlay.Delete(key) != nil {
			return nil, abi.StatusQuota
		}
		return nil, abi.StatusOK
	})
	return status
}
