"""Why a function compiles again, and where its time goes."""
