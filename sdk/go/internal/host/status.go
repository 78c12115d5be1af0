package host

// NotFound is the result of a function that found nothing.
const NotFound = -1
