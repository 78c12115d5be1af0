package rawjson

// keyStack remembers the keys so far of every object that is still open.
type keyStack struct {
	names []string
}

// keySet is the part of a keyStack that belongs to one object.
type keySet struct {
	base int
	// seen is a small Bloom filter that spares most comparisons.
	seen uint64
	// many takes over in an object with so many keys that comparing would take time with the square of their number.
	many map[string]struct{}
}

// manyKeys is from how many keys on an object gets a map.
const manyKeys = 64

func (k *keyStack) open() keySet { return keySet{base: len(k.names)} }

func (k *keyStack) close(s keySet) { k.names = k.names[:s.base] }

// add reports whether the object did not have the key yet, and remembers it.
func (k *keyStack) add(s *keySet, name string) bool {
	if s.many != nil {
		n := len(s.many)
		s.many[name] = struct{}{}
		return len(s.many) > n
	}
	h := uint(len(name))
	if h > 0 {
		h |= uint(name[0])<<8 | uint(name[h-1])<<16 | uint(name[h/2])<<24
	}
	bit := uint64(1) << (uint64(h) * 0x9E3779B97F4A7C15 >> 58)
	if s.seen&bit != 0 {
		for _, other := range k.names[s.base:] {
			if other == name {
				return false
			}
		}
	}
	s.seen |= bit
	k.names = append(k.names, name)
	if len(k.names)-s.base == manyKeys {
		s.many = make(map[string]struct{}, 4*manyKeys)
		for _, other := range k.names[s.base:] {
			s.many[other] = struct{}{}
		}
	}
	return true
}
