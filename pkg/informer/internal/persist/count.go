package persist

// Count compares the number of objects of the store with that of the API server, both at one
// resourceVersion.
type Count struct {
	Version        string
	Server, Stored int
}

// counting counts the objects of the store. The cut lock guards it.
type counting struct {
	stored  int    // the number of objects of the store
	pending *Count // Stored is known once the watch has passed its version; nil: there is none
	known   *Count // nil: there is none
}

// change counts a change of the store; before and now say whether there is an object.
func (c *counting) change(before, now bool) {
	if now && !before {
		c.stored++
	}
	if before && !now {
		c.stored--
	}
}

// pass is called before anything of a version is applied: the store has everything of the earlier
// versions.
func (c *counting) pass(version string) {
	if c.pending != nil && Lower(c.pending.Version, version) {
		c.settle()
	}
}

// settle says that the store corresponds to the version of pending.
func (c *counting) settle() {
	c.pending.Stored = c.stored
	c.known, c.pending = c.pending, nil
}

// complete is pass for a version of which everything is applied.
func (c *counting) complete(p *Position) {
	if c.pending != nil && p.open == "" && !p.relisting && p.applied == c.pending.Version {
		c.settle()
	}
}

// Expect sets the number of objects that the API server has at a version, in the place of the
// former one. It returns the last number that could be compared with the store since the last call;
// ok: there is one. The watch has to pass the version, so there is none if it has already done so,
// and none after a list.
func Expect(s *State, version string, objects int) (last Count, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &s.counting
	if c.known != nil {
		last, ok = *c.known, true
	}
	*c = counting{stored: c.stored}
	if s.loader.Load() == nil && !s.incomplete.Load() && !s.Position.relisting && !Lower(version, s.Position.reached()) {
		c.pending = &Count{Version: version, Server: objects}
		c.complete(s.Position)
	}
	return last, ok
}
