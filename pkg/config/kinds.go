package config

// Kind describes a kind of handler or sink, for [Schema] and [Reference].
type Kind struct {
	Name    string // the webhook in {webhook: {url: …}}
	Doc     string // what it does, in a sentence
	Example string // YAML as it stands below the kind
	Config  any    // a value of the struct that is decoded, see the package comment for its tags
}

// Kinds is what kinds of handlers and sinks there are.
type Kinds struct{ Handlers, Sinks []Kind }

// of returns the kinds of the components below a key of [Config].
func (k Kinds) of(key string) []Kind {
	switch key {
	case "handlers":
		return k.Handlers
	case "sinks":
		return k.Sinks
	}
	return nil
}
